"""Reads records, lists, maps and unions, for many rows at once (Avro 1.12, "Binary encoding")."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa

from eos.wire.avro._avro_cursor import MAX_ITEMS, Cursor
from eos.wire.avro._scalars import Node
from eos.wire.avro._skip_batch import find_items, skip
from eos.wire.avro._skip_row import TOO_MANY, UNKNOWN_BRANCH, Skippers
from eos.wire.avro._types import AvroType
from eos.wire.binary_columns import Int64s, Mask, item_cells

NULL_MEMBER: Final = -1
_ITEMS_AT_ONCE: Final = 1 << 20  # each takes a hundred bytes while it is read
_MOST_DEFAULT_BYTES: Final = 256 << 20
_UNREADABLE_BRANCH: Final = "has a type that is not in the reader's schema"


@dataclass(frozen=True)
class DefaultNode:
    """A field that only the reader has: nothing is read. ``one``: its default, in a column of one
    row."""

    one: pa.Array
    path: str

    def read(self, cursor: Cursor, where: Mask | None) -> pa.Array:
        """See ``Node``."""
        if len(cursor) * self.one.nbytes > _MOST_DEFAULT_BYTES:  # of records in lists
            where = np.zeros(len(cursor), np.bool_)
            cursor.items.take(MAX_ITEMS + 1)  # it may fit without other rows
            cursor.fail(~where, self.path, "has a default that is too long for so many records")
        zeros = np.zeros(len(cursor), np.int32)
        return self.one.take(pa.array(zeros, mask=None if where is None else ~where))


@dataclass(frozen=True)
class SkipNode:
    """A field that only the writer has."""

    kind: AvroType
    path: str

    def read(self, cursor: Cursor, where: Mask | None) -> pa.Array:
        """See ``Node``; the column is empty and is not used."""
        skip(self.kind, cursor, where, self.path)
        return pa.nulls(0)


@dataclass(frozen=True)
class KeyNode:
    """A map's keys."""

    text: Node

    def read(self, cursor: Cursor, where: Mask | None) -> pa.Array:
        """See ``Node``."""
        # Null keys crash Arrow, so the keys of failed rows are empty.
        return self.text.read(cursor, where).fill_null("")


@dataclass(frozen=True)
class RecordNode:
    """``record``; ``steps``: the number of the reader's field, or None, and its node, in the
    writer's order."""

    type: pa.StructType
    steps: tuple[tuple[int | None, Node], ...]

    def read(self, cursor: Cursor, where: Mask | None) -> pa.Array:
        """See ``Node``."""
        # "A record is encoded as just the concatenation of the encodings of its fields."
        columns = {number: node.read(cursor, where) for number, node in self.steps}
        children = [columns[number] for number in range(self.type.num_fields)]
        return pa.Array.from_buffers(self.type, len(cursor), [_validity(where)], children=children)


def _item_type(kind: pa.DataType) -> pa.DataType:
    return (
        pa.struct([kind.key_field, kind.item_field]) if pa.types.is_map(kind) else kind.value_type
    )


@dataclass(frozen=True)
class ListNode:
    """``array``, and ``map`` as a list of records; ``items``: the writer's type; ``item``: the node
    of an item."""

    path: str
    type: pa.DataType
    items: AvroType
    item: Node

    @cached_property
    def _skippers(self) -> Skippers:
        return Skippers()  # they are made once: wide types have many

    @cached_property
    def width(self) -> int:
        """The number of an item's cells. Lists and maps in an item count their own items."""
        return item_cells(self.type)

    def read(self, cursor: Cursor, where: Mask | None) -> pa.Array:
        """See ``Node``."""
        # "Each block consists of a long count value, followed by that many array items." The items
        # of all rows are found first, and then read as the rows of another cursor.
        rows, starts = find_items(self.items, cursor, where, self.path, skippers=self._skippers)
        if not cursor.items.take_cells(len(rows) * self.width):
            bad = np.zeros(len(cursor), np.bool_)
            bad[rows] = True
            cursor.fail(bad, self.path, TOO_MANY)
            rows, starts = rows[:0], starts[:0]
        values: list[pa.Array] = []
        for start in range(0, len(rows), _ITEMS_AT_ONCE):
            some = slice(start, start + _ITEMS_AT_ONCE)
            inner = cursor.within(rows[some], starts[some])
            values.append(self.item.read(inner, None))
            cursor.fail_with(inner, rows[some])
        offsets = np.zeros(len(cursor) + 1, np.int32)
        np.cumsum(np.bincount(rows, minlength=len(cursor)), out=offsets[1:])
        buffers = [_validity(where), pa.py_buffer(offsets)]
        items = pa.concat_arrays(values) if values else pa.array([], _item_type(self.type))
        return pa.Array.from_buffers(self.type, len(cursor), buffers, children=[items])


@dataclass(frozen=True)
class Branch:
    """A branch of the writer's union, and the reader's member that it becomes, or null."""

    member: int
    node: Node


@dataclass(frozen=True)
class UnionNode:
    """The writer's ``union``; None for a branch that the reader has no type for.

    ``type`` is a struct of the reader's members if there are several (``many``).
    """

    path: str
    type: pa.DataType
    many: bool
    branches: tuple[Branch | None, ...]

    def read(self, cursor: Cursor, where: Mask | None) -> pa.Array:
        """See ``Node``."""
        count = len(cursor)
        # "The zero-based position within the union of the schema of its value."
        index = cursor.long(self.path, where)
        inside = cursor.reason == 0 if where is None else where & (cursor.reason == 0)
        parts: dict[int, list[tuple[Mask, pa.Array]]] = {}
        valid = np.zeros(count, np.bool_)
        wrong = inside & ((index < 0) | (index >= len(self.branches)))
        cursor.fail(wrong, self.path, UNKNOWN_BRANCH)
        for number in np.unique(index[inside & (cursor.reason == 0)]).tolist():
            mask, branch = inside & (index == number), self.branches[number]
            if branch is None:
                cursor.fail(mask, self.path, _UNREADABLE_BRANCH)
                continue
            column = branch.node.read(cursor, None if mask.all() else mask)
            if branch.member != NULL_MEMBER:
                parts.setdefault(branch.member, []).append((mask, column))
                valid |= mask
        if not self.many:
            return _merged(parts.get(0, []), count, self.type)
        children = [
            _merged(parts.get(number, []), count, field.type)
            for number, field in enumerate(self.type)
        ]
        return pa.Array.from_buffers(self.type, count, [_validity(valid)], children=children)


@dataclass(frozen=True)
class MemberNode:
    """Another type, read as a member of the reader's union."""

    type: pa.StructType
    branch: Branch

    def read(self, cursor: Cursor, where: Mask | None) -> pa.Array:
        """See ``Node``."""
        column = self.branch.node.read(cursor, where)
        children = [
            column if number == self.branch.member else pa.nulls(len(cursor), field.type)
            for number, field in enumerate(self.type)
        ]
        return pa.Array.from_buffers(self.type, len(cursor), [_validity(where)], children=children)


def _merged(parts: Sequence[tuple[Mask, pa.Array]], count: int, kind: pa.DataType) -> pa.Array:
    """Merge columns, of which at most one has each row."""
    if not parts:
        return pa.nulls(count, kind)
    if len(parts) == 1:
        return parts[0][1]
    source: Int64s = np.full(count, -1, np.int64)
    for number, (mask, _) in enumerate(parts):
        source[mask] = np.flatnonzero(mask) + number * count
    every = pa.concat_arrays([column for _, column in parts])
    return every.take(pa.array(source, mask=source < 0))


def _validity(where: Mask | None) -> pa.Buffer | None:
    """Return Arrow's validity bitmap."""
    return None if where is None else pa.array(where).buffers()[1]
