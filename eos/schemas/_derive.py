"""From the type of a column to the Avro definition that is registered for it.

| Arrow (Spark) | Avro | JSON's definition, where another |
|---|---|---|
| bool (BOOLEAN) | boolean | |
| int8, int16, int32 (BYTE, SHORT, INT) | int | |
| int64 (LONG) | long | |
| float, double | float, double | |
| string | string | |
| binary | bytes | |
| decimal(p, s) | bytes, logical type decimal(p, s) | |
| date32 (DATE) | int, logical type date | string |
| timestamp with zone (TIMESTAMP) | long, logical type timestamp-micros | string |
| timestamp without (TIMESTAMP_NTZ) | long, logical type local-timestamp-micros | string |
| list (ARRAY) | array | |
| map with text as keys | map | |
| struct | record | |

Every field can be null: its type is a union of null and the type, its default is null. Whether
Spark calls a column nullable depends on the plan (a literal is not), and what is required once
can't be dropped any more. Items of lists and maps can be null where Spark says so: Java's classes
have collections without nulls.
"""

from __future__ import annotations

import re
from typing import Any, Final

import pyarrow as pa

from eos.errors import InputError
from eos.wire.sql_names import sql_name

TOP_NAME: Final = "Row"
_NAME: Final = r"[A-Za-z_][A-Za-z0-9_]*"


def derived(column: pa.DataType, *, as_json: bool) -> Any:
    """The definition of ``column``, as objects of JSON.

    Args:
        as_json: for a JSON schema: days and moments are text there.

    Raises:
        InputError: a type that Avro does not have, or a name that it does not allow.
    """
    check_is_record(column)
    return _Derivation(as_json).record(column, TOP_NAME, "")


def check_is_record(column: pa.DataType) -> None:
    """Raise ``InputError`` when values of that type are no records."""
    if not pa.types.is_struct(column):
        raise InputError(
            f"The value is {sql_name(column)}: a schema of records takes a struct.",
            hint="Leave out the column 'value', so that whole rows are written; or make it a "
            "struct: struct(a, b) AS value.",
        )


class _Derivation:
    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self._names: set[str] = set()

    def record(self, column: pa.StructType, name: str, path: str) -> dict[str, Any]:
        check_names(column, path)
        name = self._unused(name)
        fields = [self._field(field, name, path) for field in column]
        return {"type": "record", "name": name, "fields": fields}

    def _field(self, field: pa.Field, record: str, path: str) -> dict[str, Any]:
        kind = self._type(field.type, f"{record}_{field.name}", at(path, field.name))
        return {"name": field.name, "type": nullable(kind), "default": None}

    def _unused(self, name: str) -> str:
        """``name``, or one like it that no other record has."""
        number = 1
        while (found := name if number == 1 else f"{name}_{number}") in self._names:
            number += 1
        self._names.add(found)
        return found

    def _type(self, column: pa.DataType, name: str, path: str) -> Any:
        types = pa.types
        if types.is_struct(column):
            return self.record(column, name, path)
        if types.is_list(column) or types.is_large_list(column):
            items = self._type(column.value_type, name, f"{path}[]")
            return {"type": "array", "items": _as_declared(items, column.value_field)}
        if types.is_map(column):
            if not (types.is_string(column.key_type) or types.is_large_string(column.key_type)):
                raise InputError(
                    f"Column {path!r} is a map with keys of {sql_name(column.key_type)}; keys "
                    "must be STRING.",
                    hint=f"Cast the keys: transform_keys({path}, (k, v) -> CAST(k AS STRING)).",
                )
            values = self._type(column.item_type, name, f"{path}{{}}")
            return {"type": "map", "values": _as_declared(values, column.item_field)}
        scalar = self._scalar(column)
        if scalar is None:
            raise InputError(
                f"Column {path!r} is {sql_name(column)}, which no schema has.",
                hint="Cast it, to string for example, or drop it.",
            )
        return scalar

    def _scalar(self, column: pa.DataType) -> Any:
        types = pa.types
        if types.is_timestamp(column) and not self._as_json:
            zoned = "timestamp-micros" if column.tz is not None else "local-timestamp-micros"
            return {"type": "long", "logicalType": zoned}
        if types.is_date32(column) and not self._as_json:
            return {"type": "int", "logicalType": "date"}
        if types.is_decimal128(column):
            return {
                "type": "bytes",
                "logicalType": "decimal",
                "precision": column.precision,
                "scale": column.scale,
            }
        known = {
            "bool": "boolean", "int8": "int", "int16": "int", "int32": "int", "int64": "long",
            "float": "float", "double": "double", "string": "string", "large_string": "string",
            "binary": "bytes", "large_binary": "bytes",
        }  # fmt: skip
        is_text = types.is_timestamp(column) or types.is_date32(column)
        return "string" if is_text else known.get(str(column))


def _as_declared(kind: Any, field: pa.Field) -> Any:
    return nullable(kind) if field.nullable else kind


def check_names(column: pa.StructType, path: str) -> None:
    """Raise ``InputError`` for a name that neither Avro nor Protobuf allows, or that is there twice
    (Spark does not tell ``a`` from ``A``)."""
    names = [field.name for field in column]
    for name in names:
        if not re.fullmatch(_NAME, name):
            raise InputError(
                f"Column {at(path, name)!r} has a name that no schema allows.",
                hint="Names are letters, digits and _, and begin with no digit: rename it.",
            )
    lower = [name.lower() for name in names]
    twice = next((name for name in lower if lower.count(name) > 1), None)
    if twice is not None:
        raise InputError(
            f"There are two columns {at(path, twice)!r}.", hint="Drop or rename one of them."
        )


def nullable(kind: Any) -> list[Any]:
    """A union of null and ``kind``, which may be one already."""
    return kind if isinstance(kind, list) else ["null", kind]


def at(path: str, name: str) -> str:
    """The path of a field."""
    return f"{path}.{name}" if path else name
