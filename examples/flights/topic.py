"""The topic as the broker's admin API shows it."""

from __future__ import annotations

import json
import urllib.request
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True)
class Topic:
    """A partitioned topic in ``public/default``."""

    admin_url: str
    name: str

    @classmethod
    def create(cls, admin_url: str, name: str, partitions: int) -> Self:
        """Create it."""
        topic = cls(admin_url, name)
        topic._call("PUT", "partitions", partitions)
        return topic

    @property
    def url(self) -> str:
        """The full name."""
        return f"persistent://public/default/{self.name}"

    def messages_in(self) -> int:
        """How many messages the broker has taken, in a transaction or not, ended or not."""
        return int(self._call("GET", "partitioned-stats?perPartition=false")["msgInCounter"])

    def _call(self, method: str, path: str, body: object = None) -> Any:
        request = urllib.request.Request(
            f"{self.admin_url}/admin/v2/persistent/public/default/{self.name}/{path}",
            data=None if body is None else json.dumps(body).encode(),
            method=method,
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30) as response:
            text = response.read()
        return json.loads(text) if text else None
