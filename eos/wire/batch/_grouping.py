"""Rows grouped by the key that a Key_Shared subscription looks at.

The broker gives a whole entry to one consumer, and looks at the entry's own metadata for that: the
ordering key, else the partition key. So an entry has to hold one key only, and to name it. Source:
``Commands.peekStickyKey``; ``BatchMessageKeyBasedContainer`` of the Java client.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eos.wire.batch._rows import Rows
from eos.wire.columns import BINARY_TYPES, BinaryColumn, Int64s, key_text


@dataclass(frozen=True)
class StickyKey:
    """What all messages of an entry have in common; nothing for those without any key.

    Attributes:
        partition_key: as it stands on the wire; ``is_base64`` when it was bytes.
        ordering_key: goes before the partition key, which may differ then from row to row.
    """

    partition_key: str | None = None
    is_base64: bool = False
    ordering_key: bytes | None = None

    @classmethod
    def of(cls, rows: Rows, row: int) -> Self:
        """That of one row."""
        if rows.ordering_key is not None and rows.ordering_key[row].is_valid:
            return cls(ordering_key=rows.ordering_key[row].as_py())
        if rows.key is None or not rows.key[row].is_valid:
            return cls()
        text = str(key_text(rows.key.slice(row, 1)).data, "utf-8")
        is_base64 = rows.key.type in BINARY_TYPES
        if rows.key_is_base64 is not None:
            is_base64 = rows.key_is_base64[row].as_py()
        return cls(partition_key=text, is_base64=is_base64)


def longest_key_bytes(rows: Rows) -> int:
    """The most that a ``StickyKey`` of these rows takes in an entry's metadata."""
    lengths = [0]
    if rows.key is not None:
        lengths.append(int(key_text(rows.key).lengths.max(initial=0)))
    if rows.ordering_key is not None:
        lengths.append(int(BinaryColumn.of(rows.ordering_key).lengths.max(initial=0)))
    return max(lengths)


def grouped_by_key(rows: Rows) -> tuple[Rows, Int64s]:
    """The rows of each key side by side, and the row numbers at which another key begins.

    Keys stand in the order of their first rows, the rows of a key in the order of ``rows``.
    """
    keys = _numbered(rows.key, len(rows))
    if rows.key_is_base64 is not None:  # text that reads like the base64 of bytes is another key
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
    """A number for each different value, -1 for null."""
    if column is None:
        return np.full(count, -1, np.int64)
    numbers = pc.dictionary_encode(column).indices
    found: Int64s = pc.fill_null(numbers, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    return found
