"""Reading a whole topic with plain ``pulsar-client``, as any consumer would."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pulsar


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
        if message.data():
            yield message
    raise TimeoutError(f"{topic} is stuck: its sentinel was not readable in {timeout_s} s")
