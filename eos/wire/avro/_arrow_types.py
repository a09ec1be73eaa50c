"""Maps an Avro type to the Arrow type that it is read as, and checks which columns fit it.

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

from eos.errors import IncompatibleSchema, InputError
from eos.wire.avro._types import (
    JAVA_NUMBERS,
    NO_DEFAULT,
    AvroType,
    Decimal,
    Enum,
    Fixed,
    ListOf,
    MapOf,
    Primitive,
    RecordOf,
    Union,
    describe_type,
)
from eos.wire.binary_columns import BINARY_TYPES, STRING_TYPES
from eos.wire.spark_text import sql_name

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
# On all levels; a short definition whose types use each other can have billions.
MAX_FIELDS: Final = 10_000
_HINT: Final = "Give your own schema, without the fields that you don't need."
_MAX_DIGITS: Final = 38  # of decimal128


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


def has_members(union: Union, column: pa.DataType) -> bool:
    """Whether a column is a struct of the members of a union of several types, as it is read."""
    found = members(union)
    if len(found) < 2 or not pa.types.is_struct(column):
        return False
    return [field.name for field in column] == [f"member{number}" for number in range(len(found))]


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
        # A named type counts for each of its uses, because each becomes columns.
        self._count += count
        if self._count > MAX_FIELDS:
            raise IncompatibleSchema(
                f"{owner} has more than {MAX_FIELDS} fields, including nested ones: it can't be "
                "read as a column.",
                hint=_HINT,
            )


def check_fits(
    kind: AvroType, column: pa.DataType, path: str = "", *, as_json: bool = False
) -> None:
    """Check that rows of the Arrow type ``column`` can be written as ``kind``.

    Numbers may be narrower than declared; a struct may lack fields that have a default or are
    nullable, and must not have fields that the record lacks.

    Args:
        as_json: as JSON, in which a date or timestamp is text, whatever its definition says: Java's
            classes declare it as a number, and read both.

    Raises:
        InputError: they can't be written; the error names the field.
    """
    why = _FitCheck(as_json).why_not(kind, column, (path,))
    if why:
        raise InputError(why, hint="Cast or drop the column, or change the schema.")


def branch_for(union: Union, column: pa.DataType) -> int | None:
    """Return the number of the branch for a column: the first one of its own type, else the first
    one that fits; None for a column of members."""
    # It depends on the column's type, never on values; null is for a column of nulls.
    fits = _FitCheck(as_json=False)
    fitting = [
        index
        for index, branch in enumerate(union.branches)
        if (branch != NULL or pa.types.is_null(column)) and not fits.why_not(branch, column, ())
    ]
    if not fitting and has_members(union, column):
        return None
    if not fitting:
        raise InputError(f"No type of the union fits {sql_name(column)}.")
    own = (index for index in fitting if not _is_converted(union.branches[index], column))
    return next(own, fitting[0])


def _is_converted(kind: AvroType, column: pa.DataType) -> bool:
    if isinstance(kind, Enum):  # of text
        return True
    is_whole = pa.types.is_signed_integer(column)
    return kind == Primitive("double") and (is_whole or pa.types.is_float32(column))


_Path = tuple[str, ...]


class _FitCheck:
    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        # Cached, because branches of unions may use the same types.
        self._known: dict[tuple[int, _Path], str] = {}

    def why_not(self, kind: AvroType, column: pa.DataType, path: _Path) -> str:
        """Explain why ``column``, at ``path``, does not fit; "" if it does."""
        key = id(kind), path
        if key not in self._known:
            self._known[key] = self._why_not(kind, column, path)
        return self._known[key]

    def _why_not(self, kind: AvroType, column: pa.DataType, path: _Path) -> str:
        match kind:
            case Union(branches):
                reasons = [
                    self.why_not(one, column, path)
                    for one in branches
                    if one != NULL or pa.types.is_null(column)
                ]
                if "" in reasons:
                    return ""
                if has_members(kind, column) and not self._as_json:
                    pairs = zip(members(kind), column, strict=True)
                    found = (
                        self.why_not(one, child.type, (*path, f".{child.name}"))
                        for one, child in pairs
                    )
                    return next(filter(None, found), "")
                return reasons[0] if len(reasons) == 1 else _mismatch(kind, column, path)
            case RecordOf() if pa.types.is_struct(column):
                return self._why_not_record(kind, column, path)
            case ListOf(items) if pa.types.is_list(column) or pa.types.is_large_list(column):
                return self.why_not(items, column.value_type, (*path, "[]"))
            case MapOf(values) if pa.types.is_map(column) and column.key_type in STRING_TYPES:
                return self.why_not(values, column.item_type, (*path, "{}"))
        fits = _takes(kind, column) or (self._as_json and _takes_json(kind, column))
        return "" if fits else _mismatch(kind, column, path)

    def _why_not_record(self, kind: RecordOf, column: pa.StructType, path: _Path) -> str:
        columns = {field.name: field.type for field in column}
        known = {field.name for field in kind.fields}
        if len(columns) < column.num_fields:  # only one of them would be written
            names = [field.name for field in column]
            twice = next(name for name in names if names.count(name) > 1)
            return f"Two columns are called {_text((*path, f'.{twice}'))!r}."
        for name in columns:
            if name not in known:
                return f"The schema has no field {_text((*path, f'.{name}'))!r}."
        for field in kind.fields:
            where = (*path, f".{field.name}")
            if field.name in columns:
                why = self.why_not(field.type, columns[field.name], where)
                if why:
                    return why
            elif field.default is NO_DEFAULT:
                return f"The field {_text(where)!r} has neither a column nor a default."
        return ""


def _takes(kind: AvroType, column: pa.DataType) -> bool:
    types = pa.types
    match kind:
        case Primitive(name="null"):
            return bool(types.is_null(column))
        case Primitive(name="boolean"):
            return bool(types.is_boolean(column))
        case Primitive(name="int", logical=logical):
            if logical == "date":
                return bool(types.is_date32(column))
            return _is_signed(column, 32)
        case Primitive(name="long", logical=logical):
            if logical in TIMESTAMPS:
                is_local = TIMESTAMPS[logical].tz is None
                return bool(types.is_timestamp(column) and (column.tz is None) == is_local)
            return _is_signed(column, 64)
        case Primitive(name="float"):
            return bool(types.is_float32(column))
        case Primitive(name="double"):
            floating = types.is_float32(column) or types.is_float64(column)
            return floating or _is_signed(column, 32)
        case Primitive(name="string") | Enum():
            return column in STRING_TYPES
        case Primitive(name="bytes") | Fixed():
            return column in BINARY_TYPES
        case Decimal(precision, scale):
            if not types.is_decimal128(column) or column.scale > scale:
                return False
            return bool(column.precision - column.scale <= precision - scale)
    return False


def _takes_json(kind: AvroType, column: pa.DataType) -> bool:
    types = pa.types
    match kind:
        case Primitive("string", logical) if logical in JAVA_NUMBERS:
            is_whole = logical == JAVA_NUMBERS[1]
            return bool(types.is_decimal128(column) and (column.scale == 0 or not is_whole))
        case Primitive("string"):
            return bool(types.is_timestamp(column) or types.is_date32(column))
    return False


def _is_signed(column: pa.DataType, bits: int) -> bool:
    return bool(pa.types.is_signed_integer(column) and column.bit_width <= bits)


def _mismatch(kind: AvroType, column: pa.DataType, path: _Path) -> str:
    named = f"Column {_text(path)!r}" if _text(path) else "The value"
    return f"{named} is {sql_name(column)}; the schema requires {describe_type(kind)}."


def _text(path: _Path) -> str:
    return "".join(path).removeprefix(".")
