"""Skips data of one row, one by one: for the few rows that have far more items than others."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from functools import partial
from typing import Final

import numpy as np

from eos.wire.avro._avro_cursor import TOO_LONG, TRUNCATED, ItemBudget
from eos.wire.avro._types import (
    MAX_DEPTH,
    AvroType,
    Decimal,
    Enum,
    Field,
    Fixed,
    ListOf,
    MapOf,
    Primitive,
    RecordOf,
    Union,
)
from eos.wire.binary_columns import Int64s
from eos.wire.byte_rows import Bytes

UNKNOWN_BRANCH: Final = "has a branch number that its union does not have"
TOO_DEEP: Final = "is nested too deeply"
TOO_MANY: Final = "has more items than can be read at once"
_NUMBERS: Final = ("int", "long")
_MAX_VARINT_BYTES: Final = 10
_NONE: Final = np.zeros(0, np.int64)
_WIDTHS: Final = {"null": 0, "boolean": 1, "float": 4, "double": 8}


class Malformed(Exception):
    """Raised for a malformed datum. Its text is the end of a sentence about the field."""


def width_of(kind: AvroType, known: dict[int, int | None] | None = None) -> int | None:
    """Return the size in bytes of each datum of ``kind``; None if it depends on the datum."""
    known = {} if known is None else known
    match kind:
        case Primitive(name):
            return _WIDTHS.get(name)
        case Fixed(size=size) | Decimal(size=size):
            return size
        case RecordOf(fields=fields):
            if id(kind) not in known:
                known[id(kind)] = 0  # for a record that contains only itself
                widths = [width_of(field.type, known) for field in fields]
                some = [width for width in widths if width is not None]
                known[id(kind)] = sum(some) if len(some) == len(widths) else None
            return known[id(kind)]
    return None


def map_entry_of(kind: MapOf) -> RecordOf:
    """Return the record of a key and a value, of which a map's data consist."""
    return RecordOf("pair", (Field("key", Primitive("string")), Field("value", kind.values)))


# Skips one datum: (data, position, limit, depth) -> the datum's end. Raises ``Malformed``.
_Skipper = Callable[[memoryview, int, int, int], int]


class Skippers:
    """Functions that skip a datum, created once for each type."""

    def __init__(self) -> None:
        self._known: dict[int, _Skipper] = {}

    def of(self, kind: AvroType) -> _Skipper:
        """Return the function that skips a datum of ``kind``, which must stay in use."""
        key = id(kind)
        if key not in self._known:
            # A placeholder, for a recursive type.
            self._known[key] = lambda *where: self._known[key](*where)
            self._known[key] = self._made(kind)
        return self._known[key]

    def _made(self, kind: AvroType) -> _Skipper:
        width = width_of(kind)
        if width is not None:
            return _fixed(width)
        match kind:
            case Primitive("int" | "long") | Enum():
                return _past_long
            case Union(branches):
                return _one_of([self.of(one) for one in branches])
            case RecordOf(fields=fields):
                return _each_of([self.of(field.type) for field in fields])
            case ListOf(items):
                return _many(self.of(items), takes_bytes=width_of(items) != 0)
            case MapOf(values):
                return _many(_each_of([_past_sized, self.of(values)]), takes_bytes=True)
        return _past_sized  # text, bytes, a decimal


def _fixed(width: int) -> _Skipper:
    def step(_: memoryview, at: int, limit: int, depth: int) -> int:  # noqa: ARG001
        if width > limit - at:
            raise Malformed(TRUNCATED)
        return at + width

    return step


def _past_long(data: memoryview, at: int, limit: int, depth: int) -> int:  # noqa: ARG001
    if at < limit and data[at] < 0x80:
        return at + 1
    return read_long(data, at, limit)[1]


def _past_sized(data: memoryview, at: int, limit: int, depth: int) -> int:  # noqa: ARG001
    if at < limit and data[at] < 0x80:
        size, at = data[at], at + 1
        size = size >> 1 ^ -(size & 1)
    else:
        size, at = read_long(data, at, limit)
    if not 0 <= size <= limit - at:
        raise Malformed(TRUNCATED)
    return at + size


def _one_of(steps: list[_Skipper]) -> _Skipper:
    def step(data: memoryview, at: int, limit: int, depth: int) -> int:
        index, at = read_long(data, at, limit)
        if not 0 <= index < len(steps):
            raise Malformed(UNKNOWN_BRANCH)
        if depth >= MAX_DEPTH:
            raise Malformed(TOO_DEEP)
        return steps[index](data, at, limit, depth + 1)

    return step


def _each_of(steps: list[_Skipper]) -> _Skipper:
    def step(data: memoryview, at: int, limit: int, depth: int) -> int:
        if depth >= MAX_DEPTH:
            raise Malformed(TOO_DEEP)
        for one in steps:
            at = one(data, at, limit, depth + 1)
        return at

    return step


def _many(step: _Skipper, *, takes_bytes: bool) -> _Skipper:
    def steps(data: memoryview, at: int, limit: int, depth: int) -> int:
        if depth >= MAX_DEPTH:
            raise Malformed(TOO_DEEP)
        while True:
            count, at = next_block(data, at, limit)
            if not count:
                return at
            # Of items without bytes a list can claim any number.
            for _ in range(count if takes_bytes else 0):
                at = step(data, at, limit, depth + 1)

    return steps


def next_block(data: memoryview, at: int, limit: int) -> tuple[int, int]:
    """Return the number of items in the next block, and their position; 0 after the last block."""
    # "A block with count zero indicates the end of the array." A negative count is followed by the
    # block's size in bytes, which is not needed.
    count, at = read_long(data, at, limit)
    if count < 0:
        _, at = read_long(data, at, limit)
    return abs(count), at


def read_long(data: memoryview, at: int, limit: int) -> tuple[int, int]:
    """Return the number at ``at``, and its end.

    Raises:
        Malformed: the number has more than 64 bits, or is truncated.
    """
    value = 0
    for shift in range(0, 70, 7):
        if at >= limit:
            raise Malformed(TRUNCATED)
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80 and not value >> 64:
            return value >> 1 ^ -(value & 1), at
        if byte < 0x80:
            break
    raise Malformed(TOO_LONG)


class RowScan:
    """Finds the items of a list in one row, block by block."""

    def __init__(self, buffer: Bytes, limit: int, items: ItemBudget, skippers: Skippers) -> None:
        self._buffer = buffer
        self._data = buffer.data
        self._limit = limit
        self._items = items
        self._skippers = skippers

    def starts(self, kind: AvroType, at: int, left: int) -> tuple[Int64s, int]:
        """Return the position of each item of ``kind`` from ``at`` on, and the end of the list.

        ``left``: the remaining items of the block that ``at`` is in.

        Raises:
            Malformed: the row is malformed.
        """
        find, parts = self._finder(kind), []
        while True:
            if left and find is not None:  # items that take no bytes have no position
                if left > self._limit - at:
                    raise Malformed(TRUNCATED)
                if not self._items.take(left):
                    raise Malformed(TOO_MANY)
                found, at = find(at, left)
                parts.append(found)
            left, at = next_block(self._data, at, self._limit)
            if not left:
                break
        return (parts[0] if len(parts) == 1 else np.concatenate([_NONE, *parts])), at

    def _finder(self, kind: AvroType) -> Callable[[int, int], tuple[Int64s, int]] | None:
        width = width_of(kind)
        if width is not None:
            return partial(self._in_steps, width) if width else None
        if isinstance(kind, Enum) or (isinstance(kind, Primitive) and kind.name in _NUMBERS):
            return self._numbers
        return partial(self._one_by_one, self._skippers.of(kind))

    def _in_steps(self, width: int, at: int, count: int) -> tuple[Int64s, int]:
        end = at + count * width
        if end > self._limit:
            raise Malformed(TRUNCATED)
        return np.arange(at, end, width), end

    def _numbers(self, at: int, count: int) -> tuple[Int64s, int]:
        # All numbers at once: each ends with its first byte below 128.
        some = self._buffer[at : min(self._limit, at + count * _MAX_VARINT_BYTES)]
        last = np.flatnonzero(some < 0x80)[:count]
        sizes = np.diff(last, prepend=-1)
        is_long = sizes >= _MAX_VARINT_BYTES
        if is_long.any() and ((sizes > _MAX_VARINT_BYTES) | (some[last] > 1))[is_long].any():
            raise Malformed(TOO_LONG)
        if len(last) < count:
            raise Malformed(TRUNCATED)
        last += at + 1
        starts = np.empty(count, np.int64)
        starts[0], starts[1:] = at, last[:-1]
        return starts, int(last[-1])

    def _one_by_one(self, step: _Skipper, at: int, count: int) -> tuple[Int64s, int]:
        data, limit, found = self._data, self._limit, array("q")
        for _ in range(count):
            found.append(at)
            at = step(data, at, limit, 0)
        return np.frombuffer(found, np.int64), at
