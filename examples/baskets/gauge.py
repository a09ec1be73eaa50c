"""How many entries the input subscription has before it, while the demo runs."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import Final, Self

from eos.errors import EosError
from examples.baskets.job import SUBSCRIPTION
from examples.flights.topic import Topic

_EVERY_S: Final = 0.5


class BacklogGauge:
    """Asks the brokers again and again, in a thread; a context manager.

    Args:
        readings: gets time and entries; none while the brokers can't say.
    """

    def __init__(self, topic: Topic, readings: list[tuple[float, int]]) -> None:
        self._topic = topic
        self._readings = readings
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="backlog", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(_EVERY_S):
            with suppress(EosError):
                entries = self._topic.maybe_backlog(SUBSCRIPTION)
                if entries is not None:
                    self._readings.append((time.time(), entries))
