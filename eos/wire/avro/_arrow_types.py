"""Maps an Avro type to the Arrow type of the column that it is read as.

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
| array, map, record | list, map with string keys, struct |
| union of null and one other type | the other type |
| union of int and long; of float and double | int64; double |
| union of several other types | struct: ``member0``, ``member1`` ..., of which one is not null |
| null | null (VOID) |

Other logical types are read as their underlying type.
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
"""On all levels; a short definition whose types use each other can have billions."""
_HINT: Final = "Give your own schema, without the fields that you don't need."
_MAX_DIGITS: Final = 38


def arrow_type(kind: AvroType) -> pa.DataType:
    """Return the type of the column that data of ``kind`` are read as.

    Raises:
        IncompatibleSchema: there is none, for example for a recursive record.
    """
    return _Types().of(kind, "")


def members(union: Union) -> tuple[AvroType, ...]:
    """Return the branches that become different columns: without null, and without the narrower of
    two types of numbers."""
    found = tuple(branch for branch in union.branches if branch != NULL)
    for wide, narrow in (("long", "int"), ("double", "float")):
        if len(found) == 2 and set(found) == {Primitive(wide), Primitive(narrow)}:
            return (Primitive(wide),)
    return found


def time_type_of(kind: Primitive) -> str | None:
    """Return the logical type of a date, time or timestamp; None for a plain number."""
    is_int = kind.name == "int" and kind.logical in ("date", "time-millis")
    is_long = kind.name == "long" and kind.logical in {*TIMESTAMPS, "time-micros"}
    return kind.logical if is_int or is_long else None


def fits_decimal128(kind: Decimal) -> bool:
    """Whether Arrow's decimal128 can represent such decimals; others are read as bytes."""
    return 0 < kind.precision <= _MAX_DIGITS


class _Types:
    def __init__(self) -> None:
        self._open: set[int] = set()
        self._count = 0

    def of(self, kind: AvroType, path: str) -> pa.DataType:
        match kind:
            case Primitive(name):
                time_type = time_type_of(kind)
                if time_type == "date":
                    return pa.date32()
                return TIMESTAMPS.get(time_type or "", _PRIMITIVES[name])
            case Decimal(precision, scale):
                return pa.decimal128(precision, scale) if fits_decimal128(kind) else pa.binary()
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
                f"Record {kind.name!r} contains itself (at {path.lstrip('.')!r}): it can't be read "
                "as a column.",
                hint=_HINT,
            )
        self._add(len(kind.fields), f"Record {kind.name!r}")
        self._open.add(id(kind))
        fields = [
            (field.name, self.of(field.type, f"{path}.{field.name}")) for field in kind.fields
        ]
        self._open.remove(id(kind))
        return pa.struct(fields)

    def _add(self, count: int, owner: str) -> None:
        """Count fields. A named type counts for each of its uses, because each becomes columns."""
        self._count += count
        if self._count > MAX_FIELDS:
            raise IncompatibleSchema(
                f"{owner} has more than {MAX_FIELDS} fields, including nested ones: it can't be "
                "read as a column.",
                hint=_HINT,
            )
