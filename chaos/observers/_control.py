"""The control workload: plain messages, to distinguish the broker's losses from the sink's."""

from __future__ import annotations

import threading
from typing import Any, Final

import pulsar

from eos.chaos._record_text import text_of
from eos.chaos.checker.history import Control
from eos.chaos.observers.readers import drain, open_client

_EVERY_S: Final = 0.1


class ControlWriter:
    """Sends a message to its own topic every tenth of a second; a context manager."""

    def __init__(self, service_url: str, topic: str) -> None:
        self._service_url = service_url
        self._topic = topic
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="control", daemon=True)
        self._acknowledged: set[str] = set()
        self._sent: set[str] = set()

    def __enter__(self) -> ControlWriter:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(timeout=60)

    def result(self) -> Control:
        """Stop sending, and return what was acknowledged and what is readable."""
        self.__exit__()
        seen = drain(self._service_url, [self._topic], "control reader")
        return Control(
            acknowledged=frozenset(self._acknowledged),
            unknown=frozenset(self._sent - self._acknowledged),
            seen=frozenset(sight.record for sight in seen.sightings if sight.record is not None),
        )

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            client = open_client(self._service_url)
            try:
                producer = client.create_producer(self._topic)
                while not self._stop.wait(_EVERY_S):
                    number += 1
                    self._send(producer, f"control/{number}")
                producer.flush()
            except pulsar.PulsarException:
                self._stop.wait(0.5)
            finally:
                client.close()

    def _send(self, producer: Any, record_id: str) -> None:
        def on_answer(result: object, _: object) -> None:
            if result == pulsar.Result.Ok:
                self._acknowledged.add(record_id)

        self._sent.add(record_id)
        producer.send_async(text_of(record_id).encode(), on_answer)
