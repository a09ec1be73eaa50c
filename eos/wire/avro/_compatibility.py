"""Checks that a column can be written as an Avro type; once, before encoding rows."""

from __future__ import annotations

import pyarrow as pa

from eos.errors import InputError
from eos.wire.avro._types import (
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
)
from eos.wire.binary_columns import BINARY_TYPES, STRING_TYPES
from eos.wire.sql_names import sql_name

_NULL = Primitive("null")


def check_fits(kind: AvroType, column: pa.DataType, path: str = "") -> None:
    """Check that rows of the Arrow type ``column`` can be written as ``kind``.

    Numbers may be narrower than declared; a struct may lack fields that have a default or are
    nullable, and must not have fields that the record lacks.

    Raises:
        InputError: they can't be written; the error names the field.
    """
    why = _FitCheck().why_not(kind, column, (path,))
    if why:
        raise InputError(why, hint="Cast or drop the column, or change the schema.")


def branch_for(union: Union, column: pa.DataType) -> int:
    """Return the number of the branch for a column: the first one of its own type, else the first
    one that fits. It depends on the column's type, never on values; null is for a column of nulls.
    """
    fits = _FitCheck()
    fitting = [
        index
        for index, branch in enumerate(union.branches)
        if (branch != _NULL or pa.types.is_null(column)) and not fits.why_not(branch, column, ())
    ]
    if not fitting:
        raise InputError(f"No type of the union fits {sql_name(column)}.")
    own = (index for index in fitting if not _is_converted(union.branches[index], column))
    return next(own, fitting[0])


def _is_converted(kind: AvroType, column: pa.DataType) -> bool:
    """Whether the column is converted to another type: text to a symbol, for example."""
    if isinstance(kind, Enum):
        return True
    is_whole = pa.types.is_signed_integer(column)
    return kind == Primitive("double") and (is_whole or pa.types.is_float32(column))


_Path = tuple[str, ...]


class _FitCheck:
    """Checks types. Results are cached, because branches of unions may use the same types."""

    def __init__(self) -> None:
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
                    if one != _NULL or pa.types.is_null(column)
                ]
                if "" in reasons:
                    return ""
                return reasons[0] if len(reasons) == 1 else _mismatch(kind, column, path)
            case RecordOf() if pa.types.is_struct(column):
                return self._why_not_record(kind, column, path)
            case ListOf(items) if pa.types.is_list(column) or pa.types.is_large_list(column):
                return self.why_not(items, column.value_type, (*path, "[]"))
            case MapOf(values) if pa.types.is_map(column) and column.key_type in STRING_TYPES:
                return self.why_not(values, column.item_type, (*path, "{}"))
        return "" if _takes(kind, column) else _mismatch(kind, column, path)

    def _why_not_record(self, kind: RecordOf, column: pa.StructType, path: _Path) -> str:
        columns = {field.name: field.type for field in column}
        known = {field.name for field in kind.fields}
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
            if logical is not None and "timestamp-" in logical:
                return _is_timestamp(column, logical)
            return _is_signed(column, 64)
        case Primitive(name="float"):
            return bool(types.is_float32(column))
        case Primitive(name="double"):
            floating = types.is_float32(column) or types.is_float64(column)
            return floating or _is_signed(column, 32)
        case Primitive(name="string"):
            return column in STRING_TYPES
        case Primitive(name="bytes"):
            return column in BINARY_TYPES
        case Enum():
            return column in STRING_TYPES
        case Fixed():
            return column in BINARY_TYPES
        case Decimal(precision, scale):
            if not types.is_decimal128(column) or column.scale > scale:
                return False
            return bool(column.precision - column.scale <= precision - scale)
    return False


def _is_signed(column: pa.DataType, bits: int) -> bool:
    return bool(pa.types.is_signed_integer(column) and column.bit_width <= bits)


def _is_timestamp(column: pa.DataType, logical: str) -> bool:
    if not pa.types.is_timestamp(column):
        return False
    prefix = "local-timestamp-" if column.tz is None else "timestamp-"
    return logical in (f"{prefix}millis", f"{prefix}micros")


def _mismatch(kind: AvroType, column: pa.DataType, path: _Path) -> str:
    named = f"Column {_text(path)!r}" if _text(path) else "The value"
    return f"{named} is {sql_name(column)}; the schema requires {describe_type(kind)}."


def _text(path: _Path) -> str:
    return "".join(path).removeprefix(".")


def describe_type(kind: AvroType) -> str:
    """Return a short description of ``kind``."""
    match kind:
        case Primitive(name, logical):
            return logical or name
        case Decimal(precision, scale):
            return f"decimal({precision},{scale})"
        case Union(branches):
            return " or ".join(describe_type(one) for one in branches)
        case RecordOf(name):
            return f"record {name}"
        case Enum(name):
            return f"enum {name}"
        case Fixed(name):
            return f"fixed {name}"
        case ListOf():
            return "array"
        case MapOf():
            return "map"
