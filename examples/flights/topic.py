"""The topic as the broker's admin API shows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from eos.standalone import PulsarCluster, PulsarStandalone


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
        """How many messages the broker has taken, in a transaction or not, ended or not."""
        return int(self._call("GET", "partitioned-stats?perPartition=false")["msgInCounter"])

    def backlog(self, subscription: str) -> int:
        """How many entries a subscription has before it, in all partitions."""
        known = self._call("GET", "partitioned-stats?perPartition=false")["subscriptions"]
        return int(known.get(subscription, {}).get("msgBacklog", 0))

    def _call(self, method: str, path: str, body: object = None) -> Any:
        return self.broker.admin(method, f"/v2/persistent/public/default/{self.name}/{path}", body)
