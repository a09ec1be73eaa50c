"""Varints at many places of one buffer, all read at once."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from eos.wire.columns import Int64s

Words = npt.NDArray[np.uint64]
WORD_BYTES: Final = 8

_TOPS: Final = np.uint64(0x8080808080808080)
_ONE: Final = np.uint64(1)
# What halves of each step hold: 7 bits a byte, then 14 in two, 28 in four, 56 in all.
_STEPS: Final = tuple(
    (np.uint64(low), np.uint64(high), np.uint64(shift))
    for low, high, shift in (
        (0x007F007F007F007F, 0x7F007F007F007F00, 1),
        (0x00003FFF00003FFF, 0x3FFF00003FFF0000, 2),
        (0x000000000FFFFFFF, 0x0FFFFFFF00000000, 4),
    )
)


def words_of(buffer: npt.NDArray[np.uint8]) -> Words:
    """Every eight bytes of ``buffer`` as one little-endian number: word i begins at byte i.

    Nothing is copied. There are seven words less than bytes.
    """
    count = max(0, len(buffer) - WORD_BYTES + 1)
    return np.ndarray((count,), "<u8", buffer, strides=(1,))


def decode_varints(words: Words) -> tuple[Int64s, Int64s]:
    """The varints that ``words`` begin with, and their widths in bytes.

    Width 0 where none ends within eight bytes; the value is of no use then.
    """
    ends = ~words & _TOPS
    if (ends & np.uint64(0x80)).all():  # one byte each, as most often
        return (words & np.uint64(0x7F)).view(np.int64), np.ones(len(words), np.int64)
    first_end = ends & (~ends + _ONE)
    values = words & ((first_end << _ONE) - _ONE) & ~_TOPS
    for low, high, shift in _STEPS:
        values = (values & low) | ((values & high) >> shift)
    widths = (ends != 0).astype(np.int64)
    largest = int(first_end.max(initial=0))
    for bits in range(8, largest.bit_length(), 8):
        widths += first_end >= np.uint64(1 << bits)
    return values.view(np.int64), widths
