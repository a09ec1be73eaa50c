"""Plain readers of the flights: one that reads while the job runs, and one after its end."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass, field
from typing import Any, Final, Self

import pulsar

from examples._demo.demo_topic import open_client, read_all

_POLL_S: Final = 0.02


def flight_id(message: Any) -> int:
    """Return the unique id in a flight event."""
    return int(json.loads(message.data())["id"])


@dataclass
class TopicWatcher:
    """Reads a topic from its first message in a thread, until its context ends.

    Attributes:
        seen: time (``time.time()`` seconds) and flight id of each message, in reading order.
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
            RuntimeError: it failed or is too slow. Its missing rows must not count as unseen.
        """
        deadline = time.monotonic() + timeout_s
        while len(self.seen) < count and self._thread.is_alive() and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        if len(self.seen) < count:
            raise RuntimeError(
                f"The reader of {self.topic} received {len(self.seen)} of {count} rows: "
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
                if message.data():  # a sentinel has none
                    self.seen.append((at, flight_id(message)))
        finally:
            client.close()


def drain(service_url: str, topic: str) -> list[int]:
    """Return the flight ids of everything that is readable.

    Raises:
        TimeoutError: the topic is stuck.
    """
    return [flight_id(message) for message in read_all(service_url, topic)]
