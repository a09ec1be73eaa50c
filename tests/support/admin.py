"""The tests' admin calls: plain HTTP, without our own code."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any


def call(
    admin_url: str, method: str, path: str, body: object = None, *, token: str | None = None
) -> Any:
    """Call ``/admin/v2`` or ``/admin/v3``; return the parsed answer, None if it is empty."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{admin_url}/admin{path}", data=data, method=method)
    request.add_header("Content-Type", "application/json")
    if token is not None:
        request.add_header("Authorization", f"Bearer {token}")
    with urllib.request.urlopen(request, timeout=30) as response:
        text = response.read()
    return json.loads(text) if text else None


def create_partitioned(admin_url: str, topic: str, partitions: int) -> None:
    """Create ``public/default/<topic>`` with ``partitions`` partitions."""
    call(admin_url, "PUT", f"/v2/persistent/public/default/{topic}/partitions", partitions)


def delete_topic(admin_url: str, topic: str) -> None:
    """Delete ``tenant/namespace/topic`` with its subscriptions."""
    call(admin_url, "DELETE", f"/v2/persistent/{topic}?force=true")


def backlog(admin_url: str, topic: str, subscription: str = "judge") -> int:
    """Number of entries of the topic of this full name that are not acknowledged."""
    path = f"/v2/{topic.replace('://', '/')}/stats?getPreciseBacklog=true"
    return int(call(admin_url, "GET", path)["subscriptions"][subscription]["msgBacklog"])


def messages_out(admin_url: str, topic: str) -> int:
    """Number of messages sent to the current consumers of ``public/default/topic``."""
    stats = call(admin_url, "GET", f"/v2/persistent/public/default/{topic}/stats")
    return sum(int(one["msgOutCounter"]) for one in stats["subscriptions"].values())
