"""What goes in, and what has to come out. Pure.

Row n is the number n, padded; its event time follows from n and the pace, its key too. The query
counts rows and adds up their numbers by second of event time and key.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple, Self

import numpy as np
import pyarrow as pa

from eos.wire.batch import Rows
from eos.wire.columns import Int64s

PARTITIONS: Final = 4
KEYS: Final = 20
BLOCK: Final = 25_000
"""So many rows are in one transaction of the producer, by parts of equal size in each partition."""
BASE_MS: Final = 1_700_000_000_000
WINDOW_MS: Final = 1_000
DELAY_S: Final = 60
"""Of the watermark: partitions are not read equally far when a broker is slow."""
VALUE_BYTES: Final = 100
_DIGITS: Final = 12
_FILLER: Final = b"." * (VALUE_BYTES - _DIGITS)
_LAST_KEY: Final = "end"


class WindowCount(NamedTuple):
    """A row that comes out: ``n`` numbers have the key ``slot`` in a window, and their sum."""

    window_ms: int
    slot: str
    n: int
    total: int


@dataclass(frozen=True)
class SoakPlan:
    """How much, and how fast. ``minutes``: the pace; what lags takes longer."""

    rows: int
    minutes: float

    @property
    def rows_per_s(self) -> float:
        """The pace."""
        return self.rows / (60 * self.minutes)

    @property
    def last_ms(self) -> int:
        """The event time of the row behind all others: so late that it closes their windows."""
        end_ms = int(self._times_ms(np.array([self.rows]))[0])
        return end_ms + WINDOW_MS + 1_000 * DELAY_S

    def blocks(self) -> Iterator[range]:
        """The numbers of each transaction."""
        for start in range(0, self.rows, BLOCK):
            yield range(start, min(start + BLOCK, self.rows))

    def rows_of(self, numbers: range) -> Rows:
        """As messages."""
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
        """The row behind all others. Its own window stays open, so nothing of it comes out."""
        return Rows(
            value=pa.array([_FILLER + b"0" * _DIGITS], pa.binary()),
            key=pa.array([_LAST_KEY]),
            event_time_ms=pa.array([self.last_ms], pa.int64()),
        )

    def expected(self) -> Iterator[WindowCount]:
        """What has to come out, each once."""
        windows = int(self._times_ms(np.array([self.rows - 1]))[0] - BASE_MS) // WINDOW_MS + 1
        counts, totals = np.zeros(windows * KEYS, np.int64), np.zeros(windows * KEYS, np.int64)
        for block in self.blocks():
            n = np.arange(block.start, block.stop)
            cells = (self._times_ms(n) - BASE_MS) // WINDOW_MS * KEYS + n % KEYS
            np.add.at(counts, cells, 1)
            np.add.at(totals, cells, n)
        for cell in np.flatnonzero(counts).tolist():
            window, key = divmod(cell, KEYS)
            yield WindowCount(
                BASE_MS + window * WINDOW_MS, str(key), int(counts[cell]), int(totals[cell])
            )

    def _times_ms(self, n: Int64s) -> Int64s:
        # Whole numbers only: the judge and the producer must not round differently.
        return BASE_MS + n * round(60_000 * self.minutes) // self.rows

    def to_json(self) -> str:
        """For the command line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The inverse of ``to_json``."""
        return cls(**json.loads(text))


@dataclass(frozen=True)
class WindowsVerdict:
    """What is wrong with the rows of one output. All zero for exactly-once.

    Attributes:
        rows: how many there are. ``counted``: the input's rows that they count.
        missing: expected and not there. ``extra``: there and not expected, or more than once.
    """

    rows: int
    counted: int
    missing: int
    extra: int


def judge(expected: Iterable[WindowCount], found: Iterable[WindowCount]) -> WindowsVerdict:
    """Compare an output with what had to come; a row with a wrong count is missing and extra."""
    wanted = set(expected)
    seen: set[WindowCount] = set()
    rows = counted = extra = 0
    for row in found:
        rows, counted = rows + 1, counted + row.n
        extra += row in seen or row not in wanted
        seen.add(row)
    return WindowsVerdict(rows, counted, missing=len(wanted - seen), extra=extra)


def count_of(fields: dict[str, Any]) -> WindowCount:
    """A row of an output, as a reader of JSON or of the table has it."""
    return WindowCount(fields["window_ms"], fields["slot"], fields["n"], fields["total"])
