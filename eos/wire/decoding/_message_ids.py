"""Decodes columns of serialised message ids: the bytes of ``MessageIdData``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from eos.wire.binary_columns import BinaryColumn, Int64s
from eos.wire.decoding._varints import WORD_BYTES, decode_long_varints, words_of

_FIELDS: Final = (1, 2, 3, 4)
"""Ledger, entry, partition and batch index of MessageIdData in PulsarApi.proto."""
_VARINT: Final = 0
_MOST_FIELDS: Final = 64
_PADDING: Final = np.zeros(3 * WORD_BYTES, np.uint8)


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
