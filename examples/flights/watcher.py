"""What readers see: one that watches while the job runs, and one that drains at the end.

Plain ``pulsar-client``, as any consumer would be.
"""

from __future__ import annotations

import json
import os
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Self

import pulsar

_POLL_S: Final = 0.02


def open_client(service_url: str) -> pulsar.Client:
    """A client whose log lines go nowhere."""
    return pulsar.Client(
        service_url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull)
    )


def flight_id(message: Any) -> int:
    """The unique id in a flight event."""
    return int(json.loads(message.data())["id"])


@dataclass
class TopicWatcher:
    """Reads a topic from its first message on, in a thread; a context manager.

    ``seen``: (time, flight id) of each message, in the order of reading; ``time.time()`` seconds.
    """

    service_url: str
    topic: str
    seen: list[tuple[float, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="watcher", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(timeout=30)

    def await_rows(self, count: int, *, timeout_s: float = 60.0) -> None:
        """Wait until it has read ``count`` rows.

        Raises:
            RuntimeError: it failed, or has not. What it did not see must not pass for unseen.
        """
        deadline = time.monotonic() + timeout_s
        while len(self.seen) < count and self._thread.is_alive() and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        if len(self.seen) < count:
            raise RuntimeError(
                f"the watching reader of {self.topic} got {len(self.seen)} of {count} rows: "
                f"{self._error or 'it is stuck'}"
            )

    def _run(self) -> None:
        try:
            self._watch()
        except Exception as error:
            self._error = error

    def _watch(self) -> None:
        client = open_client(self.service_url)
        try:
            reader = client.create_reader(
                self.topic, pulsar.MessageId.earliest, receiver_queue_size=5000
            )
            while not self._stop.is_set():
                try:
                    message = reader.read_next(timeout_millis=200)
                except pulsar.Timeout:
                    continue
                at = time.time()
                if message.data():
                    self.seen.append((at, flight_id(message)))
        finally:
            client.close()


def drain(service_url: str, topic: str, *, timeout_s: float = 90.0) -> list[int]:
    """The flight ids of everything that is readable.

    Raises:
        TimeoutError: the topic is stuck.
    """
    return [flight_id(message) for message in read_all(service_url, topic, timeout_s=timeout_s)]


def read_all(service_url: str, topic: str, *, timeout_s: float = 90.0) -> Iterator[Any]:
    """Every message that is readable, read to a sentinel in each partition.

    Raises:
        TimeoutError: a sentinel can't be read: the topic is stuck.
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
