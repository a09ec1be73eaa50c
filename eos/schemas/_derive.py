"""Derives the Avro definition of a column from its type.

| Arrow (Spark) | Avro | JSON's definition, if different |
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
| map with string keys | map | |
| struct | record | |

Every field is nullable: its type is a union with null, its default is null. Spark's nullability
depends on the plan (a literal is not nullable), and a field that was required once can't be
dropped later. Items of lists and maps are nullable only if Spark's are: collections of Java
classes have no nulls.
"""

from __future__ import annotations

import re
from typing import Any, Final

import pyarrow as pa

from eos.errors import InputError
from eos.wire.spark_text import sql_name

TOP_NAME: Final = "Row"
_NAME: Final = r"[A-Za-z_][A-Za-z0-9_]*"


def derive_definition(column: pa.DataType, *, as_json: bool) -> Any:
    """Return the definition of ``column``, as JSON objects.

    Args:
        as_json: for a JSON schema, in which dates and timestamps are text.

    Raises:
        InputError: Avro does not have the type, or does not allow the name.
    """
    check_is_record(column)
    return _Derivation(as_json).record(column, TOP_NAME, "")


def check_is_record(column: pa.DataType) -> None:
    """Raise ``InputError`` if values of that type are not records."""
    if not pa.types.is_struct(column):
        raise InputError(
            f"The value is {sql_name(column)}, but a schema of records needs a struct.",
            hint="Leave out the column 'value' to write whole rows, or make it a struct: "
            "struct(a, b) AS value.",
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
        """Return ``name``, with a number if another record has it."""
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
                f"Column {path!r} is {sql_name(column)}, which schemas can't represent.",
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
    """Raise ``InputError`` for a name that Avro and Protobuf don't allow, or a duplicate (Spark
    ignores case)."""
    names = [field.name for field in column]
    for name in names:
        if not re.fullmatch(_NAME, name):
            raise InputError(
                f"Column {at(path, name)!r} has a name that no schema allows.",
                hint="Rename it: a name has letters, digits and _, and does not begin with a "
                "digit.",
            )
    lower = [name.lower() for name in names]
    twice = next((name for name in lower if lower.count(name) > 1), None)
    if twice is not None:
        raise InputError(
            f"Two columns are called {at(path, twice)!r}.", hint="Drop or rename one of them."
        )


def nullable(kind: Any) -> list[Any]:
    """Return a union of null and ``kind``; ``kind`` itself if it is a union."""
    return kind if isinstance(kind, list) else ["null", kind]


def at(path: str, name: str) -> str:
    """Return the path of a field."""
    return f"{path}.{name}" if path else name
