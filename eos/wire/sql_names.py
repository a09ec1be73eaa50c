"""Spark's names for Arrow types, which users know."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

_SCALARS: Final = {
    "bool": "boolean", "int8": "tinyint", "int16": "smallint", "int32": "int", "int64": "bigint",
    "large_string": "string", "large_binary": "binary", "date32[day]": "date", "null": "void",
}  # fmt: skip


def sql_name(kind: pa.DataType) -> str:
    """Return the name of Spark's ``DataType.simpleString``, or Arrow's name if Spark has none."""
    types = pa.types
    if types.is_struct(kind):
        return f"struct<{','.join(f'{one.name}:{sql_name(one.type)}' for one in kind)}>"
    if types.is_list(kind) or types.is_large_list(kind):
        return f"array<{sql_name(kind.value_type)}>"
    if types.is_map(kind):
        return f"map<{sql_name(kind.key_type)},{sql_name(kind.item_type)}>"
    if types.is_decimal128(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if types.is_timestamp(kind):
        return "timestamp" if kind.tz is not None else "timestamp_ntz"
    return _SCALARS.get(str(kind), str(kind))
