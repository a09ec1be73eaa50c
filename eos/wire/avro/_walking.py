"""Past one datum, in plain Python: for the few rows that have far more items than others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from eos.wire.avro._cursor import CUT_OFF, TOO_LONG
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

NO_BRANCH: Final = "is of a branch that its union does not have"
TOO_DEEP: Final = "is nested too deeply"
_WIDTHS: Final = {"null": 0, "boolean": 1, "float": 4, "double": 8}


class Malformed(Exception):
    """A datum is; the text ends a sentence."""


def width_of(kind: AvroType, known: dict[int, int | None] | None = None) -> int | None:
    """How many bytes each datum of ``kind`` takes; None when that depends on the datum."""
    known = {} if known is None else known
    match kind:
        case Primitive(name):
            return _WIDTHS.get(name)
        case Fixed(size=size) | Decimal(size=size):
            return size
        case RecordOf(fields=fields):
            if id(kind) not in known:
                known[id(kind)] = 0  # for a record that holds nothing but itself
                widths = [width_of(field.type, known) for field in fields]
                some = [width for width in widths if width is not None]
                known[id(kind)] = sum(some) if len(some) == len(widths) else None
            return known[id(kind)]
    return None


def pair_of(kind: MapOf) -> RecordOf:
    """A key and a value, as they lie in a map's data."""
    return RecordOf("pair", (Field("key", Primitive("string")), Field("value", kind.values)))


class Walk:
    """Through one row: ``data[at:limit]``."""

    def __init__(self, data: memoryview, at: int, limit: int) -> None:
        self._data = data
        self.at = at
        self._limit = limit

    def items(self, kind: AvroType, left: int) -> Iterator[int]:
        """Where each item of a list of ``kind`` begins; ``left``: of the block that ``at`` is in.

        Raises:
            Malformed: the row is.
        """
        takes_bytes = width_of(kind) != 0
        while True:
            for _ in range(left if takes_bytes else 0):
                yield self.at
                self.skip(kind)
            left = self._next_block()
            if not left:
                return

    def skip(self, kind: AvroType, depth: int = 0) -> None:
        """Past a datum of ``kind``.

        Raises:
            Malformed: the row is.
        """
        if depth > MAX_DEPTH:
            raise Malformed(TOO_DEEP)
        match kind:
            case Primitive("int" | "long") | Enum():
                self._long()
            case Primitive("string" | "bytes") | Decimal(size=None):
                self._move(self._long())
            case Union(branches):
                index = self._long()
                if not 0 <= index < len(branches):
                    raise Malformed(NO_BRANCH)
                self.skip(branches[index], depth + 1)
            case RecordOf(fields=fields):
                width = width_of(kind)
                if width is not None:
                    self._move(width)
                    return
                for field in fields:
                    self.skip(field.type, depth + 1)
            case ListOf(items):
                self._skip_items(items, depth + 1)
            case MapOf():
                self._skip_items(pair_of(kind), depth + 1)
            case _:
                self._move(width_of(kind) or 0)

    def _skip_items(self, kind: AvroType, depth: int) -> None:
        takes_bytes = width_of(kind) != 0
        while left := self._next_block():
            for _ in range(left if takes_bytes else 0):
                self.skip(kind, depth)

    def _next_block(self) -> int:
        """How many items it has; 0 behind the last one."""
        count = self._long()
        if count < 0:
            self._long()  # its size in bytes
        return abs(count)

    def _move(self, size: int) -> None:
        if not 0 <= size <= self._limit - self.at:
            raise Malformed(CUT_OFF)
        self.at += size

    def _long(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            if self.at >= self._limit:
                raise Malformed(CUT_OFF)
            byte = self._data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80 and not value >> 64:
                return value >> 1 ^ -(value & 1)
            if byte < 0x80:
                break
        raise Malformed(TOO_LONG)
