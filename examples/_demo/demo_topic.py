"""A topic, through the admin API, and read by plain ``pulsar-client``, as by any consumer."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import pulsar

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
        """Return how many entries a subscription has not acknowledged; None if it is unknown."""
        # A partition has no answer while a broker is down.
        stats = self._call("GET", "partitioned-stats?perPartition=true")
        partitions = stats["partitions"].values()
        if len(partitions) < stats["metadata"]["partitions"]:
            return None
        known = (one["subscriptions"].get(subscription, {}) for one in partitions)
        return sum(int(one.get("msgBacklog", 0)) for one in known)

    def _call(self, method: str, path: str, body: object = None) -> Any:
        return self.broker.admin(method, f"/v2/persistent/public/default/{self.name}/{path}", body)


def open_client(service_url: str) -> pulsar.Client:
    """Return a client that logs nothing."""
    return pulsar.Client(
        service_url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull)
    )


def read_all(service_url: str, topic: str, *, timeout_s: float = 90.0) -> Iterator[Any]:
    """Yield every readable message of each partition, up to a sentinel that is sent first.

    Raises:
        TimeoutError: a sentinel is not readable: the topic is stuck.
    """
    client = open_client(service_url)
    try:
        for name in client.get_topic_partitions(topic):
            yield from _read_partition(client, name, timeout_s)
    finally:
        client.close()


def _read_partition(client: pulsar.Client, topic: str, timeout_s: float) -> Iterator[Any]:
    # "Nothing came for a while" would prove nothing.
    sentinel = str(uuid.uuid4())
    producer = client.create_producer(topic)
    producer.send(b"", properties={"sentinel": sentinel})
    producer.close()
    reader = client.create_reader(topic, pulsar.MessageId.earliest, receiver_queue_size=5000)
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        try:
            message = reader.read_next(timeout_millis=500)
        except pulsar.Timeout:
            continue
        if message.properties().get("sentinel") == sentinel:
            return
        if "sentinel" not in message.properties():  # another reader's
            yield message
    raise TimeoutError(f"{topic} is stuck: its sentinel was not readable in {timeout_s} s")
