"""How many entries the input subscription has before it, while the demo runs."""

from __future__ import annotations

import time
from typing import Final

from eos.chaos.observers.ticker import Ticker
from eos.errors import EosError
from examples.baskets.job import SUBSCRIPTION
from examples.flights.topic import Topic

_EVERY_S: Final = 0.5


class BacklogGauge(Ticker):
    """Asks the brokers again and again, in a thread; a context manager.

    Args:
        readings: gets time and entries; none while the brokers can't say.
    """

    def __init__(self, topic: Topic, readings: list[tuple[float, int]]) -> None:
        super().__init__(_EVERY_S, self._take, EosError)
        self._topic = topic
        self._readings = readings

    def _take(self) -> None:
        entries = self._topic.maybe_backlog(SUBSCRIPTION)
        if entries is not None:
            self._readings.append((time.time(), entries))
