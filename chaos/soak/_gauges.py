"""What the run leaves on disks and in topics, reading by reading: it must not grow either."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from chaos.observers.resources import growth_of
from chaos.observers.ticker import Ticker
from eos.errors import EosError

EVERY_S: Final = 15.0
MOST_GROWTH: Final = 1.25
"""The highest of the last quarter against that of the second: what is trimmed goes up and down."""
LONG_S: Final = 600.0
"""Shorter runs say nothing about what grows."""


@dataclass(frozen=True)
class Reading:
    """One moment; sizes in bytes. ``at_s``: since the run began.

    ``backlog``: entries that the query's subscription has before it.
    """

    at_s: float
    log_bytes: int
    log_files: int
    checkpoint_files: int
    receipts_bytes: int
    input_bytes: int
    backlog: int


BOUNDED: Final = ("log_bytes", "log_files", "checkpoint_files", "receipts_bytes", "input_bytes")
"""What must stay bounded."""


def growth(readings: Sequence[Reading], name: str) -> float | None:
    """The highest of the last quarter over that of the second; None: too short a run to tell."""
    if not readings or readings[-1].at_s < LONG_S:
        return None
    return growth_of([float(getattr(reading, name)) for reading in readings], max)


def grown(readings: Sequence[Reading]) -> dict[str, float]:
    """What has grown by more than it may, with its growth."""
    found = {name: growth(readings, name) for name in BOUNDED}
    return {name: ratio for name, ratio in found.items() if ratio and ratio > MOST_GROWTH}


def folder_size(folder: Path) -> tuple[int, int]:
    """Bytes and files in a folder, with what is below it."""
    sizes = []
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # files come and go
            if path.is_file():
                sizes.append(path.stat().st_size)
    return sum(sizes), len(sizes)


class Gauges(Ticker):
    """Takes a reading every few seconds in a thread; a context manager.

    Args:
        read: takes one, given the seconds since the run began.
    """

    def __init__(self, read: Callable[[float], Reading]) -> None:
        super().__init__(EVERY_S, self._take, EosError)  # a broker that can't say now says it later
        self.readings: list[Reading] = []
        self._read = read
        self._began = time.monotonic()

    def _take(self) -> None:
        self.readings.append(self._read(time.monotonic() - self._began))
