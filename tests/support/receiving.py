"""Receiving and reading up to a number or a sentinel: a silence is no end."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator

from eos.client import Consumer, PulsarClient, Reader, ReceivedMessage, TopicsConsumer

WITHIN_S = 30.0  # it takes milliseconds, if the machine is not busy


def received(consumer: Consumer | TopicsConsumer, count: int) -> list[ReceivedMessage]:
    """The next ``count`` messages; fewer if the others do not come in time."""
    seen: list[ReceivedMessage] = []
    ends = time.monotonic() + WITHIN_S
    while len(seen) < count:
        message = consumer.receive(max(0.0, ends - time.monotonic()))
        if message is None:
            break
        seen.append(message)
    return seen


def values(messages: list[ReceivedMessage]) -> list[bytes | None]:
    """The values of ``messages``."""
    return [one.value for one in messages]


def batches_until(
    consumer: Consumer | TopicsConsumer, is_so: Callable[[], object]
) -> Iterator[list[ReceivedMessage]]:
    """Receive until ``is_so()``, and yield the messages; fail if it is not so in time.

    A consumer looks for topics, and moves dead letters, only while it receives.
    """
    ends = time.monotonic() + WITHIN_S
    while not is_so():
        assert time.monotonic() < ends, "it did not come to be in time"
        if batch := consumer.receive_batch(100, 0.1):
            yield batch


def unacknowledged(client: PulsarClient, consumer: Consumer) -> list[ReceivedMessage]:
    """All messages that come before a sentinel, which is sent now, and acknowledged.

    The consumer must have its subscription alone, or have been opened just now: otherwise a
    message that comes again may come after the sentinel.
    """
    sentinel, seen = _send_sentinel(client, consumer.topic), []
    while message := received(consumer, 1):
        if message[0].value == sentinel:
            consumer.acknowledge(message)
            return seen
        seen += message
    raise AssertionError(f"{consumer.topic} is stuck: {len(seen)} messages, and no sentinel")


def readable(client: PulsarClient, reader: Reader) -> list[bytes]:
    """All values that come before a sentinel, which is sent now."""
    sentinel, seen = _send_sentinel(client, reader.topic), []
    for batch in reader.read(idle_s=WITHIN_S):
        seen += batch.column("value").to_pylist()
        if seen[-1] == sentinel:
            return seen[:-1]
    raise AssertionError(f"{reader.topic} is stuck: {len(seen)} messages, and no sentinel")


def _send_sentinel(client: PulsarClient, topic: str) -> bytes:
    sentinel = uuid.uuid4().bytes
    producer = client.entry_producer(topic)
    producer.send(sentinel).result(timeout=20)
    producer.close()
    return sentinel
