"""Structs as JSON text, as Spark's ``to_json`` makes it with the options that sinks give it.

For rows that come as Arrow batches. It loops over the rows: the slowest of the schemas.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

ToText = Callable[[Any], str]


def json_text(array: pa.Array) -> pa.Array:
    """The text of each value; a null stays null. Fields that are null are left out, moments are in
    UTC with microseconds, binary is base64, decimals are numbers."""
    text = _text_of(array.type)
    return pa.array(
        [None if value is None else text(value) for value in array.to_pylist()], pa.string()
    )


def _text_of(kind: pa.DataType) -> ToText:
    types = pa.types
    if types.is_struct(kind):
        return _struct(kind)
    if types.is_map(kind):
        return _map(kind)
    if types.is_list(kind) or types.is_large_list(kind):
        item = _text_of(kind.value_type)
        return lambda values: f"[{','.join(_or_null(item, value) for value in values)}]"
    if types.is_timestamp(kind):
        return _moment if kind.tz else _local
    for is_kind, text in _TEXTS:
        if is_kind(kind):
            return text
    return json.dumps


def _struct(kind: pa.StructType) -> ToText:
    fields = [(field.name, _string(field.name), _text_of(field.type)) for field in kind]

    def text(value: dict[str, Any]) -> str:
        given = (
            f"{label}:{of_field(value[name])}"
            for name, label, of_field in fields
            if value[name] is not None
        )
        return f"{{{','.join(given)}}}"

    return text


def _map(kind: pa.MapType) -> ToText:
    item = _text_of(kind.item_type)

    def text(pairs: list[tuple[str, Any]]) -> str:
        given = (f"{_string(key)}:{_or_null(item, value)}" for key, value in pairs)
        return f"{{{','.join(given)}}}"

    return text


def _or_null(text: ToText, value: Any) -> str:
    return "null" if value is None else text(value)


def _string(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def _binary(value: bytes) -> str:
    return f'"{base64.b64encode(value).decode()}"'


def _float(value: float) -> str:
    if math.isnan(value):
        return '"NaN"'
    return json.dumps(value) if math.isfinite(value) else f'"{"-" * (value < 0)}Infinity"'


def _decimal(value: Decimal) -> str:
    return format(value, "f")


def _day(value: date) -> str:
    return f'"{value.isoformat()}"'


def _moment(value: datetime) -> str:
    return f'"{value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds")}Z"'


def _local(value: datetime) -> str:
    return f'"{value.isoformat(timespec="microseconds")}"'


_TEXTS: Final[tuple[tuple[Callable[[pa.DataType], bool], ToText], ...]] = (
    (pa.types.is_string, _string),
    (pa.types.is_large_string, _string),
    (pa.types.is_binary, _binary),
    (pa.types.is_large_binary, _binary),
    (pa.types.is_floating, _float),
    (pa.types.is_decimal, _decimal),
    (pa.types.is_date, _day),
)
