"""Keys of messages: text and bytes in one column, and rows grouped by key.

Source: ``Commands.peekStickyKey``; ``BatchMessageKeyBasedContainer`` of the Java client.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eos.errors import InputError
from eos.wire.batch._batch_rows import Rows
from eos.wire.batch._row_checks import first_not_utf8, first_true, not_utf8
from eos.wire.binary_columns import (
    BINARY_TYPES,
    EMPTY,
    FALSE,
    BinaryColumn,
    Int64s,
    as_base64,
    key_text,
)


def text_keys(keys: pa.Array, is_binary: pa.BooleanArray) -> tuple[pa.Array, pa.BooleanArray]:
    """Return the keys in their form on the wire, and which of them are base64 of bytes: ``key`` and
    ``key_is_base64`` of ``Rows``.

    Args:
        keys: binary or string; null for a row without a key.
        is_binary: whether each key is bytes or text; ignored for a row without a key.

    Raises:
        InputError: ``is_binary`` of a key is null, or text is not UTF-8; the error names the row.
    """
    if (row := first_true(pc.and_(keys.is_valid(), is_binary.is_null()))) >= 0:
        raise InputError(
            f"Column '__keyIsBinary' is null in row {row}, which has a key.",
            hint="Set it for each key: true for bytes, false for text.",
        )
    flags = pc.and_(pc.fill_null(is_binary, FALSE), keys.is_valid())
    raw = keys.cast(pa.binary())
    encoded = as_base64(BinaryColumn.of(pc.if_else(flags, raw, EMPTY))).array()
    text = pc.if_else(flags, encoded, raw).view(pa.string())
    if (row := first_not_utf8(text)) >= 0:
        raise not_utf8("key", row)
    return text, flags


@dataclass(frozen=True)
class StickyKey:
    """The common key of all messages of an entry; without fields for messages without a key.

    Attributes:
        partition_key: in its form on the wire; ``is_base64`` for bytes.
        ordering_key: takes precedence; the partition keys of the rows may then differ.
    """

    partition_key: bytes | None = None
    is_base64: bool = False
    ordering_key: bytes | None = None

    @property
    def size_bytes(self) -> int:
        """The bytes that it takes in an entry's metadata, beside the message's own key."""
        return len(self.partition_key or b"") + len(self.ordering_key or b"")

    @classmethod
    def of(cls, rows: Rows, row: int) -> Self:
        """Return the sticky key of one row."""
        # Key_Shared: the broker delivers a whole entry to one consumer, which it chooses by the
        # entry's metadata: the ordering key, else the partition key.
        if rows.ordering_key is not None and rows.ordering_key[row].is_valid:
            return cls(ordering_key=rows.ordering_key[row].as_py())
        if rows.key is None or not rows.key[row].is_valid:
            return cls()
        text = bytes(key_text(rows.key.slice(row, 1)).data)
        is_base64 = rows.key.type in BINARY_TYPES
        if rows.key_is_base64 is not None:
            is_base64 = rows.key_is_base64[row].as_py()
        return cls(partition_key=text, is_base64=is_base64)


def longest_key_bytes(rows: Rows) -> int:
    """Return the greatest length of a ``StickyKey`` of these rows in an entry's metadata."""
    lengths = [0]
    if rows.key is not None:
        lengths.append(int(key_text(rows.key).lengths.max(initial=0)))
    if rows.ordering_key is not None:
        lengths.append(int(BinaryColumn.of(rows.ordering_key).lengths.max(initial=0)))
    return max(lengths)


def grouped_by_key(rows: Rows) -> tuple[Rows, Int64s]:
    """Return the rows grouped by key, and the row numbers at which another key begins.

    Keys are in the order of their first rows, the rows of a key in the order of ``rows``.
    """
    keys = _numbered(rows.key, len(rows))
    if rows.key_is_base64 is not None:  # text that equals the base64 of bytes is another key
        keys = np.where(keys < 0, keys, keys * 2 + rows.key_is_base64.cast(pa.int8()).to_numpy())
    ordering = _numbered(rows.ordering_key, len(rows))
    groups = np.where(ordering >= 0, ordering, ordering.max(initial=-1) + 2 + keys)
    _, firsts, numbers = np.unique(groups, return_index=True, return_inverse=True)
    order = np.argsort(firsts[numbers], kind="stable")
    ordered = groups[order]
    edges: Int64s = np.flatnonzero(ordered[1:] != ordered[:-1]) + 1
    is_in_order = bool((order[1:] > order[:-1]).all())
    return rows if is_in_order else rows.take(order), edges


def _numbered(column: pa.Array | None, count: int) -> Int64s:
    """Return a number for each distinct value, -1 for null."""
    if column is None:
        return np.full(count, -1, np.int64)
    numbers = pc.dictionary_encode(column).indices
    found: Int64s = pc.fill_null(numbers, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    return found
