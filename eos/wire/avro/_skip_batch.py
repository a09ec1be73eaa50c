"""Skips data of many rows at once, and finds the positions of list items (Avro 1.12, "Binary
encoding")."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from eos.wire.avro._avro_cursor import TRUNCATED, Cursor
from eos.wire.avro._skip_row import (
    TOO_DEEP,
    TOO_MANY,
    UNKNOWN_BRANCH,
    Malformed,
    RowScan,
    Skippers,
    map_entry_of,
    width_of,
)
from eos.wire.avro._types import (
    MAX_DEPTH,
    AvroType,
    Enum,
    ListOf,
    MapOf,
    Primitive,
    RecordOf,
    Union,
)
from eos.wire.binary_columns import Int64s, Mask

# With fewer rows a step of numpy takes as long as a loop over them.
_FEW_ROWS: Final = 48


def skip(kind: AvroType, cursor: Cursor, where: Mask | None, path: str, depth: int = 0) -> None:
    """Skip a datum of ``kind`` in the rows ``where`` (None: in all)."""
    alive = cursor.reason == 0 if where is None else where & (cursor.reason == 0)
    if not alive.any():
        return
    if depth > MAX_DEPTH:
        cursor.fail(alive, path, TOO_DEEP)
        return
    width = width_of(kind)
    if width is not None:
        cursor.take(width, path, where)
        return
    match kind:
        case RecordOf(fields=fields):
            for field in fields:
                skip(field.type, cursor, where, f"{path}.{field.name}", depth + 1)
        case Union(branches):
            index = cursor.long(path, where)
            cursor.fail(alive & ((index < 0) | (index >= len(branches))), path, UNKNOWN_BRANCH)
            for number in np.unique(index[alive]).tolist():
                if 0 <= number < len(branches):
                    skip(branches[number], cursor, alive & (index == number), path, depth + 1)
        case ListOf(items):
            find_items(items, cursor, where, f"{path}[]", depth + 1)
        case MapOf():
            find_items(map_entry_of(kind), cursor, where, f"{path}{{}}", depth + 1)
        case Primitive("int" | "long") | Enum():
            cursor.long(path, where)
        case _:
            cursor.take(cursor.long(path, where), path, where)


def find_items(
    kind: AvroType,
    cursor: Cursor,
    where: Mask | None,
    path: str,
    depth: int = 0,
    skippers: Skippers | None = None,
) -> tuple[Int64s, Int64s]:
    """Skip a list in the rows ``where`` (None: in all), and return the row and the position of each
    item.

    Items are ordered by row. They may include items of rows that fail, but not items that take no
    bytes.
    """
    search = _ItemSearch(kind, cursor, path, depth, skippers or Skippers())
    active = np.arange(len(cursor)) if where is None else np.flatnonzero(where)
    while len(active) > _FEW_ROWS:
        active = search.step(active)
    for row in active.tolist():
        search.scan(row)
    return search.found()


class _ItemSearch:
    """A search for items: a step finds one item in each of many rows, or a whole block if items
    have a fixed size."""

    def __init__(
        self, kind: AvroType, cursor: Cursor, path: str, depth: int, skippers: Skippers
    ) -> None:
        self._kind = kind
        self._width = width_of(kind)
        self._cursor = cursor
        self._path = path
        self._depth = depth
        self._left = np.zeros(len(cursor), np.int64)  # items of the block that a row is in
        self._rows: list[Int64s] = []
        self._starts: list[Int64s] = []
        self._skippers = skippers
        cursor.at = cursor.at.copy()

    def step(self, active: Int64s) -> Int64s:
        """Find an item, or a block, in each row. Return the rows that are not done."""
        step = self._cursor.within(active, self._cursor.at[active])
        left = self._left[active]
        fresh = left == 0
        if fresh.any():
            left += self._next_block(step, fresh)
        going = left > 0
        if self._width == 0:
            left[:] = 0
        elif self._width is not None:
            fits = left <= (step.limit - step.at) // self._width
            spans = step.take(np.where(fits, left * self._width, -1), self._path, going)
            taken = np.where(spans.size > 0, left, 0)
            if not self._cursor.items.take(int(taken.sum())):
                self._fail(active, TOO_MANY)
                return active[:0]
            firsts = np.cumsum(taken) - taken
            nth = np.arange(int(taken.sum())) - np.repeat(firsts, taken)
            self._rows.append(np.repeat(active, taken))
            self._starts.append(np.repeat(spans.at, taken) + nth * self._width)
            left[:] = 0
        else:
            self._rows.append(active[going])
            self._starts.append(step.at[going])
            skip(self._kind, step, going, self._path, self._depth)
            left -= going
        self._left[active] = left
        self._cursor.at[active] = step.at
        self._cursor.fail_with(step, active)
        rest: Int64s = active[going & (step.reason == 0)]
        return rest

    def _next_block(self, step: Cursor, fresh: Mask) -> Int64s:
        # "If a block's count is negative, its absolute value is used, and the count is followed
        # immediately by a long block size indicating the number of bytes in the block."
        counts = np.where(fresh, step.long(self._path, fresh), 0)
        sized = counts < 0
        if sized.any():
            step.long(self._path, sized)
            counts = np.abs(counts)
        step.fail(counts < 0, self._path, TRUNCATED)  # -2^63, whose absolute value overflows
        return np.where(step.reason == 0, counts, 0)

    def scan(self, row: int) -> None:
        """Find the remaining items of one row, block by block."""
        cursor = self._cursor
        scan = RowScan(cursor.buffer, int(cursor.limit[row]), cursor.items, self._skippers)
        at, left = int(cursor.at[row]), int(self._left[row])
        try:
            starts, cursor.at[row] = scan.starts(self._kind, at, left)
        except Malformed as error:
            self._fail([row], str(error))
        else:
            # broadcast_to: for a row with millions of items its number takes no memory.
            self._rows.append(np.broadcast_to(np.int64(row), len(starts)))
            self._starts.append(starts)

    def _fail(self, rows: Sequence[int] | Int64s, problem: str) -> None:
        bad = np.zeros(len(self._cursor), np.bool_)
        bad[rows] = True
        self._cursor.fail(bad, self._path, problem)

    def found(self) -> tuple[Int64s, Int64s]:
        """Return the items of all rows, ordered by row."""
        if len(self._rows) == 1:
            return self._rows[0], self._starts[0]
        rows = np.concatenate([np.zeros(0, np.int64), *self._rows])
        starts = np.concatenate([np.zeros(0, np.int64), *self._starts])
        order = np.argsort(rows, kind="stable")
        return rows[order], starts[order]
