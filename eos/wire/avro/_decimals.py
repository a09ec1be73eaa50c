"""Reading decimals: numbers of any length in two's complement, big endian."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eos.wire.avro._cursor import Cursor
from eos.wire.avro._scalars import take_blob
from eos.wire.byte_rows import Bytes
from eos.wire.columns import Int64s, Mask
from eos.wire.decoding import Spans

_BYTES: Final = 16  # of a decimal in Arrow


@dataclass(frozen=True)
class DecimalNode:
    """A decimal in ``bytes``, or in ``fixed`` where there is a size in bytes."""

    path: str
    type: pa.Decimal128Type
    size: int | None

    def read(self, cursor: Cursor, where: Mask | None) -> pa.Array:
        """See ``Node``."""
        spans = take_blob(cursor, self.size, self.path, where)
        numbers, bad = _numbers(cursor.buffer, spans)
        bad |= ~_is_below(numbers, 10**self.type.precision)
        cursor.fail(bad & (spans.size >= 0), self.path, f"has no room in {self.type}")
        valid = None if where is None else pa.array(where).buffers()[1]
        return pa.Array.from_buffers(self.type, len(cursor), [valid, pa.py_buffer(numbers)])


def _numbers(buffer: Bytes, spans: Spans) -> tuple[npt.NDArray[np.uint64], Mask]:
    """Each number as 16 bytes, little endian; and which ones take more."""
    sizes = np.maximum(spans.size, 0)
    first = buffer[spans.at]
    sign = np.where((sizes > 0) & (first >= 0x80), np.uint8(0xFF), np.uint8(0))
    block = np.repeat(sign[:, None], _BYTES, axis=1)
    last = spans.at + sizes - 1
    for nth in range(min(_BYTES, int(sizes.max(initial=0)))):
        has = sizes > nth
        block[:, nth] = np.where(has, buffer[np.where(has, last - nth, 0)], sign)
    too_large = (block[:, -1] ^ sign) >= 0x80
    _check_rest(buffer, spans.at, np.maximum(sizes - _BYTES, 0), sign, too_large)
    return block.view("<u8"), too_large


def _check_rest(buffer: Bytes, at: Int64s, rest: Int64s, sign: Bytes, too_large: Mask) -> None:
    """What stands before the last 16 bytes may say no more than the sign."""
    rows = np.repeat(np.arange(len(at)), rest)
    nth = np.arange(len(rows)) - np.repeat(np.cumsum(rest) - rest, rest)
    too_large[rows[buffer[at[rows] + nth] != sign[rows]]] = True


def _is_below(numbers: npt.NDArray[np.uint64], limit: int) -> Mask:
    """Whether -limit < number < limit."""
    low, high = numbers[:, 0], numbers[:, 1].view(np.int64)

    def is_below(bound: int) -> Mask:
        top, bottom = bound >> 64, np.uint64(bound & (2**64 - 1))
        below: Mask = (high < top) | ((high == top) & (low < bottom))
        return below

    inside: Mask = is_below(limit) & ~is_below(1 - limit)
    return inside
