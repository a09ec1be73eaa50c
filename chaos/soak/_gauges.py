"""What the run leaves on disks and in topics, reading by reading: it must not grow either."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from eos.chaos.observers.resources import growth_of, ratio
from eos.chaos.observers.ticker import Ticker
from eos.errors import EosError

EVERY_S: Final = 15.0
MOST_GROWTH: Final = 1.25
"""The highest of the last quarter against that of the second: what is trimmed goes up and down."""


@dataclass(frozen=True)
class Reading:
    """One moment; sizes in bytes. ``at_s``: since the run began.

    ``epochs`` that have ended; ``backlog``: entries that the query's subscription has before it.
    """

    at_s: float
    epochs: int
    log_bytes: int
    log_files: int
    checkpoint_files: int
    receipts_bytes: int
    input_bytes: int
    backlog: int


BOUNDED: Final = ("log_bytes", "log_files", "checkpoint_files", "receipts_bytes", "input_bytes")
"""What must stay bounded."""
_KEPT_FOR_A_TIME: Final = ("log_bytes", "log_files", "receipts_bytes")
"""There is as much of these as epochs have left in the minutes before, and a query runs more epochs
when it has the machine to itself: so they are counted per recent epoch."""
RECENTLY_S: Final = 600.0
"""As long as the commit log keeps a file that it has replaced."""
LONG_S: Final = 3 * RECENTLY_S
"""Shorter runs say nothing about what grows."""


def recent_epochs(readings: Sequence[Reading]) -> list[int]:
    """How many epochs ended in the ``RECENTLY_S`` before each reading, or since the run began."""
    return [one.epochs - _epochs_at(readings, one.at_s - RECENTLY_S) for one in readings]


def _epochs_at(readings: Sequence[Reading], at_s: float) -> int:
    return max((one.epochs for one in readings if one.at_s <= at_s), default=0)


def growth(readings: Sequence[Reading], name: str) -> float | None:
    """How often as much there is of it in the end as before; None: nobody can tell, as the run was
    too short or there was never any.

    The highest of the last quarter over that of the second. Of what is kept for a time, per recent
    epoch, over that of the second ten minutes: there are few older epochs yet, so what is kept for
    ever stands out later, however the pace changes.
    """
    if not readings or readings[-1].at_s < LONG_S:
        return None
    if name not in _KEPT_FOR_A_TIME:
        return growth_of([float(getattr(reading, name)) for reading in readings], max)
    per_epoch = [
        getattr(reading, name) / max(1, recent)
        for reading, recent in zip(readings, recent_epochs(readings), strict=True)
    ]
    first = [n for n, one in enumerate(readings) if 1 <= one.at_s / RECENTLY_S < 2]
    before = max((per_epoch[n] for n in first), default=0.0)
    return ratio(max(per_epoch[-(len(readings) // 4) :]), before)


def grown(readings: Sequence[Reading]) -> dict[str, float]:
    """What has grown by more than it may, with its growth."""
    found = {name: growth(readings, name) for name in BOUNDED}
    return {name: ratio for name, ratio in found.items() if ratio and ratio > MOST_GROWTH}


def folder_size(folder: Path) -> tuple[int, int]:
    """Bytes and files in a folder, with what is below it."""
    sizes = []
    for parent, _, names in os.walk(folder):  # files and folders come and go
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                sizes.append(Path(parent, name).stat().st_size)
    return sum(sizes), len(sizes)


class Gauges(Ticker):
    """Takes a reading every few seconds in a thread; a context manager.

    Args:
        read: takes one, given the seconds since the run began.
    """

    def __init__(self, read: Callable[[float], Reading]) -> None:
        # A broker that can't say now says it later.
        super().__init__(EVERY_S, self._take, EosError, LookupError, OSError)
        self.readings: list[Reading] = []
        self._read = read
        self._began = time.monotonic()

    def _take(self) -> None:
        self.readings.append(self._read(time.monotonic() - self._began))
