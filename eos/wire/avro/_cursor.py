"""Where many data are being read at once: a position in each, all in one buffer."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from eos.wire.byte_rows import Bytes
from eos.wire.columns import BinaryColumn, Int64s, Mask
from eos.wire.decoding import WORD_BYTES, Spans, decode_long_varints, words_of

CUT_OFF: Final = "is cut off"
TOO_LONG: Final = "has a number of more than 64 bits"

MAX_ITEMS: Final = 1 << 24

_PADDING_BYTES: Final = 2 * WORD_BYTES
_MAX_VARINT_BYTES: Final = 10
_ONE: Final = np.uint64(1)


class Items:
    """How many items of lists may still be read, of all rows that are read at once.

    Each takes some 24 bytes until its column is there, and one byte may be one.
    """

    def __init__(self) -> None:
        self._left = MAX_ITEMS

    def take(self, count: int) -> bool:
        """Whether ``count`` more may be."""
        self._left -= count
        return self._left >= 0


class Cursor:
    """n rows of one buffer, and how far each was read.

    A row that is malformed is failed: it stands at its end, where nothing is left to read, and its
    first reason is kept. What is read of it is of no use, but never from behind its end's padding.

    Attributes:
        buffer: with as many bytes behind the last row as are read at a time.
        at: the next byte of each row.
        limit: the byte behind each row.
        reason: of each row, a number of ``reasons``; 0 for a row that has not failed.
        reasons: text -> number; that of other cursors on the buffer too.
        items: of all cursors on the buffer.
    """

    def __init__(
        self,
        buffer: Bytes,
        at: Int64s,
        limit: Int64s,
        reasons: dict[str, int],
        items: Items | None = None,
    ) -> None:
        self.buffer = buffer
        self.at = at
        self.limit = limit
        self.reasons = reasons
        self.items = items or Items()
        self.reason: npt.NDArray[np.int32] = np.zeros(len(at), np.int32)
        self._words = words_of(buffer)

    @classmethod
    def over(cls, column: BinaryColumn) -> Cursor:
        """At the beginning of each row of ``column``."""
        data = np.frombuffer(column.data, np.uint8)
        buffer = np.concatenate([data, np.zeros(_PADDING_BYTES, np.uint8)])
        return cls(buffer, column.offsets[:-1], column.offsets[1:], {})

    def __len__(self) -> int:
        return len(self.at)

    def within(self, rows: Int64s, at: Int64s) -> Cursor:
        """Another cursor, on the rows ``rows`` of this one, from ``at`` on."""
        return Cursor(self.buffer, at, self.limit[rows], self.reasons, self.items)

    def fail(self, bad: Mask, path: str, what: str) -> None:
        """The rows ``bad`` are malformed: the field at ``path`` is ``what``."""
        if not bad.any():
            return
        named = f"The field {path.lstrip('.')!r}" if path else "The value"
        number = self.reasons.setdefault(f"{named} {what}.", len(self.reasons) + 1)
        self.reason[bad & (self.reason == 0)] = number
        self.at = np.where(bad, self.limit, self.at)

    def fail_with(self, inner: Cursor, rows: Int64s) -> None:
        """What has failed in ``inner`` fails here; ``rows``: the row of each one there."""
        bad = np.flatnonzero(inner.reason)
        if len(bad):
            fresh = bad[self.reason[rows[bad]] == 0][::-1]  # of several the first one stays
            self.reason[rows[fresh]] = inner.reason[fresh]
            self.at = np.where(self.reason > 0, self.limit, self.at)

    def long(self, path: str, where: Mask | None) -> Int64s:
        """The next long of the rows ``where`` (None: of all)."""
        first = self.buffer[self.at]
        if first.max(initial=0) < 0x80:  # one byte each, as most often
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
        """The next ``sizes`` bytes of the rows ``where`` (None: of all); size -1 in others, and
        where a row has not so many."""
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
        self.fail(bad, path, CUT_OFF)
