"""The judge: a plain ``pulsar-client`` reader that drains a topic to a sentinel.

It uses none of the project's code: it reads the same messages as any consumer in any language.
"""

from __future__ import annotations

import os
import time
import uuid
from dataclasses import dataclass
from typing import Any

import pulsar


@dataclass(frozen=True)
class Seen:
    """One message, as the judge read it."""

    topic: str
    value: bytes
    key: str
    properties: dict[str, str]
    event_time_ms: int
    ordering_key: str
    producer: str
    position: tuple[int, int, int]


def quiet_client(service_url: str, *, token: str | None = None, **options: Any) -> pulsar.Client:
    """A client with these ``options`` that discards its log lines."""
    logger = pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull)
    credentials = None if token is None else pulsar.AuthenticationToken(token)
    options = {"operation_timeout_seconds": 30, **options}
    return pulsar.Client(service_url, authentication=credentials, logger=logger, **options)


def drain(
    service_url: str, topic: str, *, timeout_s: float = 60.0, token: str | None = None
) -> list[Seen]:
    """Read all readable messages in all partitions of ``topic``, in the order of each partition.

    A sentinel is sent after them and read. So no earlier message can have been missed: each is
    visible, or never will be.

    Raises:
        TimeoutError: a sentinel was not readable in time: the topic is stuck.
    """
    client = quiet_client(service_url, token=token)
    try:
        partitions = client.get_topic_partitions(topic)
        return [seen for name in partitions for seen in _drain_one(client, name, timeout_s)]
    finally:
        client.close()


def _ordering_key(message: pulsar.Message) -> str:
    try:
        return str(message.ordering_key())
    except UnicodeDecodeError:  # the client returns text only
        return "bytes"


def _drain_one(client: pulsar.Client, topic: str, timeout_s: float) -> list[Seen]:
    sentinel = str(uuid.uuid4())
    producer = client.create_producer(topic)
    producer.send(b"", properties={"judge": sentinel})
    producer.close()
    reader = client.create_reader(topic, pulsar.MessageId.earliest, receiver_queue_size=5000)
    deadline = time.monotonic() + timeout_s
    seen: list[Seen] = []
    try:
        while time.monotonic() < deadline:
            try:
                message = reader.read_next(timeout_millis=500)
            except pulsar.Timeout:
                continue
            properties = dict(message.properties())
            if properties.get("judge") == sentinel:
                return seen
            if "judge" in properties:
                continue
            message_id = message.message_id()
            seen.append(
                Seen(
                    topic=topic,
                    value=message.data(),
                    key=message.partition_key(),
                    properties=properties,
                    event_time_ms=message.event_timestamp(),
                    ordering_key=_ordering_key(message),
                    producer=message.producer_name(),
                    position=(
                        message_id.ledger_id(),
                        message_id.entry_id(),
                        message_id.batch_index(),
                    ),
                )
            )
    finally:
        reader.close()
    raise TimeoutError(f"{topic} is stuck: no sentinel within {timeout_s} s, {len(seen)} before")
