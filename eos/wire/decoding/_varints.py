"""Decodes varints, and the message ids that consist of them, at many positions at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eos.wire.binary_columns import BinaryColumn, Int64s

Words = npt.NDArray[np.uint64]
WORD_BYTES: Final = 8

_TOPS: Final = np.uint64(0x8080808080808080)
_ONE: Final = np.uint64(1)
# The masks of each step, which joins neighbours: 7 bits per byte, then 14 in two, 28 in four bytes.
_STEPS: Final = tuple(
    (np.uint64(low), np.uint64(high), np.uint64(shift))
    for low, high, shift in (
        (0x007F007F007F007F, 0x7F007F007F007F00, 1),
        (0x00003FFF00003FFF, 0x3FFF00003FFF0000, 2),
        (0x000000000FFFFFFF, 0x0FFFFFFF00000000, 4),
    )
)

_FIELDS: Final = (1, 2, 3, 4)  # ledger, entry, partition, batch index of MessageIdData
_VARINT: Final = 0
_MOST_FIELDS: Final = 64
_PADDING: Final = np.zeros(3 * WORD_BYTES, np.uint8)


def words_of(buffer: npt.NDArray[np.uint8]) -> Words:
    """Return a view of ``buffer`` as overlapping little-endian words: word i begins at byte i.

    There are seven words less than bytes.
    """
    count = max(0, len(buffer) - WORD_BYTES + 1)
    return np.ndarray((count,), "<u8", buffer, strides=(1,))


def decode_varints(words: Words) -> tuple[Int64s, Int64s]:
    """Return the varints at the start of ``words``, and their widths in bytes.

    A width of 0 means that no varint ends within eight bytes; its value is undefined.
    """
    ends = ~words & _TOPS
    if (ends & np.uint64(0x80)).all():  # one byte each, the usual case
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


def decode_long_varints(words: Words, at: Int64s) -> tuple[npt.NDArray[np.uint64], Int64s]:
    """Return the 64-bit varints at ``at``, and their widths in bytes, 1 to 10.

    A width of 0 means that no varint ends within ten bytes, or that it has more than 64 bits; its
    value is undefined. ``words`` must have eight more words after the last position.
    """
    low, widths = decode_varints(words[at])
    values = low.view(np.uint64)
    if widths.all():
        return values, widths
    rows = np.flatnonzero(widths == 0)  # their eight bytes have 56 bits in ``values``
    high, more = decode_varints(words[at[rows] + WORD_BYTES])
    values[rows] |= high.view(np.uint64) << np.uint64(56)
    widths[rows] = np.where((more > 0) & (more <= 2) & (high < 256), WORD_BYTES + more, 0)
    return values, widths


@dataclass(frozen=True)
class MessageIds:
    """A column of message ids; -1 where a field is missing."""

    ledger: Int64s
    entry: Int64s
    partition: Int64s
    batch_index: Int64s


def decode_message_ids(column: pa.Array) -> MessageIds:
    """Return the ids in ``column``, in the format of the source's ``__messageId`` and the Java
    client.

    Raises:
        ValueError: an id is invalid, null, or that of a message in chunks.
    """
    ids = BinaryColumn.of(column)
    buffer = np.concatenate([np.frombuffer(ids.data, np.uint8), _PADDING])
    words = words_of(buffer)
    at, ends = ids.offsets[:-1].copy(), ids.offsets[1:]
    fields = np.full((len(_FIELDS), len(ids)), -1, np.int64)
    rows = np.flatnonzero(at < ends)
    for _ in range(_MOST_FIELDS):
        if not len(rows):
            break
        tags = buffer[at[rows]]
        values, widths = decode_long_varints(words, at[rows] + 1)
        at[rows] += 1 + widths
        if (widths == 0).any() or (at[rows] > ends[rows]).any() or (tags & 7 != _VARINT).any():
            raise ValueError("not a message id")
        for index, number in enumerate(_FIELDS):
            of_it = tags >> 3 == number
            fields[index, rows[of_it]] = values[of_it].view(np.int64)
        rows = rows[at[rows] < ends[rows]]
    if len(rows) or (fields[:2] < 0).any():
        raise ValueError("not a message id")
    return MessageIds(*fields)
