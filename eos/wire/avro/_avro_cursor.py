"""Reads many Avro data at once: a position in each of them, in one buffer."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from eos.wire.avro._types import field_text
from eos.wire.binary_columns import BinaryColumn, Int64s, Mask
from eos.wire.byte_rows import Bytes
from eos.wire.decoding import WORD_BYTES, Spans, decode_long_varints, words_of

TRUNCATED: Final = "is truncated"
TOO_LONG: Final = "has a number of more than 64 bits"

# An item takes some 24 bytes until its column is complete, and may be a single byte of input.
MAX_ITEMS: Final = 1 << 24

_PADDING_BYTES: Final = 2 * WORD_BYTES
_MAX_VARINT_BYTES: Final = 10  # fastavro reads longer ones
_ONE: Final = np.uint64(1)


class TooMuchAtOnce(Exception):
    """Raised when several values together would become too large columns: read half of them."""


class ItemBudget:
    """Limits the items of lists, and the cells of their columns, over all rows that are read at
    once; ``size``: of these rows, in bytes."""

    def __init__(self, size: int) -> None:
        self._items = MAX_ITEMS
        # A cell with a value has a byte; of records that are null, and of fields that the writer
        # lacks, a byte has any number of cells.
        self._cells = MAX_ITEMS + size

    @property
    def is_spent(self) -> bool:
        """Whether a limit was exceeded."""
        return min(self._items, self._cells) < 0

    def take(self, count: int) -> bool:
        """Count more items; False if they exceed the limit."""
        self._items -= count
        return self._items >= 0

    def take_cells(self, count: int) -> bool:
        """Count more cells; False if they exceed the limit."""
        self._cells -= count
        return self._cells >= 0


class Cursor:
    """n rows of one buffer, and the read position of each.

    A malformed row fails: it is moved to its end, where nothing is left to read, and keeps its
    first reason. The values that are read from it are undefined, but reads never go past the
    padding.

    Attributes:
        buffer: has padding for reads past the end of the last row.
        at: the position of each row's next byte.
        limit: the end of each row.
        reason: the number in ``reasons`` for each row; 0 if it has not failed.
        reasons: text -> number; shared by all cursors on the buffer.
        items: shared by all cursors on the buffer.
    """

    def __init__(
        self,
        buffer: Bytes,
        at: Int64s,
        limit: Int64s,
        reasons: dict[str, int],
        items: ItemBudget,
    ) -> None:
        self.buffer = buffer
        self.at = at
        self.limit = limit
        self.reasons = reasons
        self.items = items
        self.reason: npt.NDArray[np.int32] = np.zeros(len(at), np.int32)
        self._words = words_of(buffer)

    @classmethod
    def over(cls, column: BinaryColumn, items: ItemBudget) -> Cursor:
        """Return a cursor at the start of each row of ``column``."""
        data = np.frombuffer(column.data, np.uint8)
        buffer = np.concatenate([data, np.zeros(_PADDING_BYTES, np.uint8)])
        return cls(buffer, column.offsets[:-1], column.offsets[1:], {}, items)

    def __len__(self) -> int:
        return len(self.at)

    def within(self, rows: Int64s, at: Int64s) -> Cursor:
        """Return another cursor on the rows ``rows`` of this one, from ``at`` on."""
        return Cursor(self.buffer, at, self.limit[rows], self.reasons, self.items)

    def fail(self, bad: Mask, path: str, problem: str) -> None:
        """Mark the rows ``bad`` as malformed because of the field at ``path``."""
        if not bad.any():
            return
        number = self.reasons.setdefault(f"{field_text(path)} {problem}.", len(self.reasons) + 1)
        self.reason[bad & (self.reason == 0)] = number
        self.at = np.where(bad, self.limit, self.at)

    def fail_with(self, inner: Cursor, rows: Int64s) -> None:
        """Copy the failures of ``inner``, whose rows have the numbers ``rows`` here."""
        bad = np.flatnonzero(inner.reason)
        if len(bad):
            fresh = bad[self.reason[rows[bad]] == 0][::-1]  # reversed: the first reason is kept
            self.reason[rows[fresh]] = inner.reason[fresh]
            self.at = np.where(self.reason > 0, self.limit, self.at)

    def long(self, path: str, where: Mask | None) -> Int64s:
        """Read a long of the rows ``where`` (None: of all)."""
        first = self.buffer[self.at]
        if first.max(initial=0) < 0x80:  # one byte each, the usual case
            zigzag = first.astype(np.uint64)
            ends = self.at + 1
            bad = ends > self.limit
        else:
            zigzag, widths = decode_long_varints(self._words, self.at)
            endless = widths == 0
            if endless.any():
                inside = endless if where is None else endless & where
                is_whole = self.at + _MAX_VARINT_BYTES <= self.limit
                self.fail(inside & is_whole, path, TOO_LONG)
            ends = self.at + widths
            bad = endless | (ends > self.limit)
        self._advance(ends, bad, path, where)
        values: Int64s = (zigzag >> _ONE).view(np.int64) ^ -(zigzag & _ONE).view(np.int64)
        return values

    def take(self, sizes: Int64s | int, path: str, where: Mask | None) -> Spans:
        """Read ``sizes`` bytes of the rows ``where`` (None: of all). The size is -1 for other rows,
        and for rows with fewer bytes."""
        at, left = self.at, self.limit - self.at
        bad = (sizes > left) | (np.asarray(sizes) < 0)
        spans = Spans(at, np.where(bad, -1, sizes))
        if where is not None:
            spans.size[~where] = -1
        self._advance(np.where(bad, at, at + sizes), bad, path, where)
        return spans

    def _advance(self, ends: Int64s, bad: Mask, path: str, where: Mask | None) -> None:
        if where is not None:
            bad = bad & where
            ends = np.where(where, ends, self.at)
        self.at = ends
        self.fail(bad, path, TRUNCATED)
