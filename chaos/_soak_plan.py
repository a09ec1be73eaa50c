"""The rows of a soak, and the counts that its query must write. Pure.

Row n is the number n, padded to 100 bytes. Its event time follows from n and the pace, its key is n
modulo ``KEYS``. The query counts rows and adds up their numbers by second of event time and key.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from eos.chaos.checker.history import Record
from eos.chaos.schedule import Schedule
from eos.wire.batch import Rows
from eos.wire.binary_columns import Int64s

PARTITIONS: Final = 4
KEYS: Final = 20
BLOCK: Final = 25_000  # rows in one transaction of the producer
BASE_MS: Final = 1_700_000_000_000
WINDOW_MS: Final = 1_000
# Delay of the watermark: a slow broker delays one partition.
DELAY_S: Final = 60
VALUE_BYTES: Final = 100
_DIGITS: Final = 12
_FILLER: Final = b"." * (VALUE_BYTES - _DIGITS)
_LAST_KEY: Final = "end"


@dataclass(frozen=True)
class SoakPlan:
    """``rows`` sent at a steady pace within ``minutes``."""

    rows: int
    minutes: float

    @property
    def rows_per_s(self) -> float:
        """The pace."""
        return self.rows / (60 * self.minutes)

    @property
    def last_ms(self) -> int:
        """The event time of the last row, late enough to close the windows of all others."""
        end_ms = int(self._times_ms(np.array([self.rows]))[0])
        return end_ms + WINDOW_MS + 1_000 * DELAY_S

    def blocks(self) -> Iterator[range]:
        """The numbers in each transaction."""
        for start in range(0, self.rows, BLOCK):
            yield range(start, min(start + BLOCK, self.rows))

    def rows_of(self, numbers: range) -> Rows:
        """The messages of one transaction."""
        n = np.arange(numbers.start, numbers.stop)
        digits = np.char.zfill(n.astype(f"U{_DIGITS}"), _DIGITS).astype(f"S{_DIGITS}")
        values = np.full((len(n), VALUE_BYTES), _FILLER[0], np.uint8)
        values[:, -_DIGITS:] = digits.view(np.uint8).reshape(len(n), _DIGITS)
        offsets = np.arange(len(n) + 1, dtype=np.int32) * VALUE_BYTES
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(values)]
        return Rows(
            value=pa.Array.from_buffers(pa.binary(), len(n), buffers),
            key=pa.array((n % KEYS).astype(str)),
            event_time_ms=pa.array(self._times_ms(n)),
        )

    def last_row(self) -> Rows:
        """The row that closes all windows. Its own window stays open, so it is not written."""
        return Rows(
            value=pa.array([_FILLER + b"0" * _DIGITS], pa.binary()),
            key=pa.array([_LAST_KEY]),
            event_time_ms=pa.array([self.last_ms], pa.int64()),
        )

    def expected(self, watermarks: Sequence[tuple[int, float]] = ()) -> Iterator[Record]:
        """The records that the query must write, each once: ``window/key/count/sum``.

        ``watermarks``: each epoch with its watermark in seconds, in order.
        """
        windows = int(self._times_ms(np.array([self.rows - 1]))[0] - BASE_MS) // WINDOW_MS + 1
        counts, sums = np.zeros(windows * KEYS, np.int64), np.zeros(windows * KEYS, np.int64)
        for block in self.blocks():
            n = np.arange(block.start, block.stop)
            cells = (self._times_ms(n) - BASE_MS) // WINDOW_MS * KEYS + n % KEYS
            np.add.at(counts, cells, 1)
            np.add.at(sums, cells, n)
        closed_s = [watermark_s for _, watermark_s in watermarks]
        for place, cell in enumerate(np.flatnonzero(counts).tolist()):
            window, key = divmod(cell, KEYS)
            window_ms = BASE_MS + window * WINDOW_MS
            # An epoch writes the windows that its watermark closes.
            index = bisect_left(closed_s, (window_ms + WINDOW_MS) / 1000)
            epoch = str(watermarks[index][0]) if index < len(watermarks) else ""
            # The id has count and sum: a row lost, doubled or exchanged gives another id, which was
            # never written.
            yield Record(f"{window_ms}/{key}/{counts[cell]}/{sums[cell]}", epoch, place, str(key))

    def _times_ms(self, n: Int64s) -> Int64s:
        # Integers only: checker and producer must not round differently.
        return BASE_MS + n * round(60_000 * self.minutes) // self.rows


def soak_of(schedule: Schedule) -> SoakPlan | None:
    """The plan of a schedule with a steady input; an epoch of it is a minute."""
    return SoakPlan(schedule.input_rows, schedule.epochs) if schedule.input_rows else None


def read_count(message: Any) -> tuple[str | None, str]:
    """The id of the record in a message of the query's output."""
    return message.data().decode(errors="replace"), ""
