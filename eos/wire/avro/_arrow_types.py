"""From an Avro type to the type of the column that it is read as.

| Avro | Arrow (Spark) |
|---|---|
| boolean, int, long, float, double | bool, int32, int64, float, double |
| string, bytes | string, binary |
| int, logical type date | date32 (DATE) |
| long, logical types timestamp-millis and timestamp-micros | timestamp in UTC (TIMESTAMP) |
| long, logical types local-timestamp-millis and -micros | timestamp without zone (TIMESTAMP_NTZ) |
| decimal(p, s) of at most 38 digits | decimal128(p, s) |
| enum | string |
| fixed | binary |
| array, map, record | list, map with text as keys, struct |
| null and one other | the other |
| int and long; float and double | int64; double |
| several others | struct: ``member0``, ``member1`` ..., of which one is not null |
| null alone | null (VOID) |

Other logical types are read as what lies below them.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from eos.errors import IncompatibleSchema
from eos.wire.avro._types import (
    AvroType,
    Decimal,
    Enum,
    Fixed,
    ListOf,
    MapOf,
    Primitive,
    RecordOf,
    Union,
)

NULL: Final = Primitive("null")
TIMESTAMPS: Final = {
    "timestamp-millis": pa.timestamp("us", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "local-timestamp-millis": pa.timestamp("us"),
    "local-timestamp-micros": pa.timestamp("us"),
}
_PRIMITIVES: Final = {
    "null": pa.null(), "boolean": pa.bool_(), "int": pa.int32(), "long": pa.int64(),
    "float": pa.float32(), "double": pa.float64(), "string": pa.string(), "bytes": pa.binary(),
}  # fmt: skip
MAX_FIELDS: Final = 10_000
"""Of all levels; a definition of few lines, whose types use each other, can have billions."""
_HINT: Final = "Give a schema of your own, without the fields that you can do without."
_MAX_DIGITS: Final = 38


def arrow_type(kind: AvroType) -> pa.DataType:
    """The type of the column that data of ``kind`` are read as.

    Raises:
        IncompatibleSchema: there is none: a record holds records of its own type, say.
    """
    return _Types().of(kind, "")


def members(union: Union) -> tuple[AvroType, ...]:
    """The branches that are told apart: without null, and a number's narrower type."""
    found = tuple(branch for branch in union.branches if branch != NULL)
    for wide, narrow in (("long", "int"), ("double", "float")):
        if len(found) == 2 and set(found) == {Primitive(wide), Primitive(narrow)}:
            return (Primitive(wide),)
    return found


def moment_of(kind: Primitive) -> str | None:
    """What a number stands for, as its logical type says; None: for itself."""
    is_day = kind.name == "int" and kind.logical in ("date", "time-millis")
    is_moment = kind.name == "long" and kind.logical in {*TIMESTAMPS, "time-micros"}
    return kind.logical if is_day or is_moment else None


def is_number(kind: Decimal) -> bool:
    """Whether a column can have such decimals; others are read as their bytes."""
    return 0 < kind.precision <= _MAX_DIGITS


class _Types:
    def __init__(self) -> None:
        self._open: set[int] = set()
        self._count = 0

    def of(self, kind: AvroType, path: str) -> pa.DataType:
        match kind:
            case Primitive(name):
                moment = moment_of(kind)
                if moment == "date":
                    return pa.date32()
                return TIMESTAMPS.get(moment or "", _PRIMITIVES[name])
            case Decimal(precision, scale):
                return pa.decimal128(precision, scale) if is_number(kind) else pa.binary()
            case Fixed():
                return pa.binary()
            case Enum():
                return pa.string()
            case ListOf(items):
                return pa.list_(self.of(items, f"{path}[]"))
            case MapOf(values):
                return pa.map_(pa.string(), self.of(values, f"{path}{{}}"))
            case Union():
                return self._union(kind, path)
            case RecordOf():
                return self._record(kind, path)

    def _union(self, kind: Union, path: str) -> pa.DataType:
        found = members(kind)
        if len(found) < 2:
            return self.of(found[0] if found else NULL, path)
        self._add(len(found), f"The union at {path.lstrip('.')!r}")
        return pa.struct(
            [(f"member{number}", self.of(one, path)) for number, one in enumerate(found)]
        )

    def _record(self, kind: RecordOf, path: str) -> pa.DataType:
        if id(kind) in self._open:
            raise IncompatibleSchema(
                f"Record {kind.name!r} contains itself (at {path.lstrip('.')!r}): no column can "
                "have such a type.",
                hint=_HINT,
            )
        self._add(len(kind.fields), f"Record {kind.name!r}")
        self._open.add(id(kind))
        fields = [
            (field.name, self.of(field.type, f"{path}.{field.name}")) for field in kind.fields
        ]
        self._open.remove(id(kind))
        return pa.struct(fields)

    def _add(self, count: int, what: str) -> None:
        """Named types that are used again and again count each time: so many columns they are."""
        self._count += count
        if self._count > MAX_FIELDS:
            raise IncompatibleSchema(
                f"{what} has more than {MAX_FIELDS} fields, with all that they hold: no column has "
                "such a type.",
                hint=_HINT,
            )
