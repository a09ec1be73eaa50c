"""A topic, through the broker's admin API."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from eos.testing import PulsarCluster, PulsarStandalone


@dataclass(frozen=True)
class Topic:
    """A partitioned topic in ``public/default``."""

    broker: PulsarStandalone | PulsarCluster
    name: str

    @classmethod
    def create(cls, broker: PulsarStandalone | PulsarCluster, name: str, partitions: int) -> Self:
        """Create it."""
        topic = cls(broker, name)
        topic._call("PUT", "partitions", partitions)
        return topic

    @property
    def url(self) -> str:
        """The full name."""
        return f"persistent://public/default/{self.name}"

    def messages_in(self) -> int:
        """Return how many messages the broker has received, in transactions of any state too."""
        return int(self._call("GET", "partitioned-stats?perPartition=false")["msgInCounter"])

    def maybe_backlog(self, subscription: str) -> int | None:
        """Return how many entries a subscription has not acknowledged; None if a partition has
        no answer at the moment."""
        stats = self._call("GET", "partitioned-stats?perPartition=true")
        partitions = stats["partitions"].values()
        if len(partitions) < stats["metadata"]["partitions"]:
            return None
        known = (one["subscriptions"].get(subscription, {}) for one in partitions)
        return sum(int(one.get("msgBacklog", 0)) for one in known)

    def _call(self, method: str, path: str, body: object = None) -> Any:
        return self.broker.admin(method, f"/v2/persistent/public/default/{self.name}/{path}", body)
