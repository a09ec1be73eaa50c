"""From a user's DataFrame to the columns that a writing task takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual name
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from eos.errors import InputError

_TEXT: Final = (StringType, BinaryType)


def _value(kind: DataType) -> Column:
    if not isinstance(kind, _TEXT):
        raise InputError(
            f"Column 'value' is {kind.simpleString()}: it must be binary or string.",
            hint="Encode the rows first, for example to_json(struct('*')) AS value.",
        )
    return F.col("value")


def _key(kind: DataType) -> Column:
    if not isinstance(kind, _TEXT):
        raise InputError(
            f"Column 'key' is {kind.simpleString()}: it must be string or binary.",
            hint="Cast it: CAST(key AS STRING).",
        )
    return F.col("key")


def _event_time(kind: DataType) -> Column:
    if isinstance(kind, TimestampNTZType):
        raise InputError(
            "Column 'event_time' is a timestamp without time zone: which moment it means is open.",
            hint="Say which zone it is in: to_utc_timestamp(event_time, 'Europe/Berlin').",
        )
    if isinstance(kind, TimestampType):
        return F.unix_millis("event_time").alias("event_time")
    if isinstance(kind, LongType | IntegerType):
        return F.col("event_time").cast("long").alias("event_time")
    raise InputError(
        f"Column 'event_time' is {kind.simpleString()}: it must be a timestamp, or whole "
        "milliseconds since 1970 as long."
    )


def _properties(kind: DataType) -> Column:
    text = isinstance(kind, MapType) and (
        isinstance(kind.keyType, StringType) and isinstance(kind.valueType, StringType)
    )
    if not text:
        raise InputError(
            f"Column 'properties' is {kind.simpleString()}: it must be map<string,string>."
        )
    return F.col("properties")


COLUMNS: Final[dict[str, Callable[[DataType], Column]]] = {
    "value": _value,
    "key": _key,
    "event_time": _event_time,
    "properties": _properties,
}
"""Column -> how its type is checked and brought to the form that tasks take."""


def select_columns(df: DataFrame) -> DataFrame:
    """``df`` as value (binary or string), key (string or binary), event_time (long,
    milliseconds) and properties (map of strings); the optional ones only where ``df`` has them.

    Raises:
        InputError: a column is missing, unknown or of the wrong type; the message names it.
    """
    kinds = {field.name: field.dataType for field in df.schema.fields}
    if "value" not in kinds:
        raise InputError(
            f"There is no column 'value'; columns are {', '.join(kinds) or 'none'}.",
            hint="Encode the rows first, for example to_json(struct('*')) AS value.",
        )
    unknown = [name for name in kinds if name not in COLUMNS]
    if unknown:
        raise InputError(
            f"Columns {', '.join(map(repr, unknown))} would not be written: a sink takes "
            f"{', '.join(COLUMNS)}.",
            hint="Drop them, or encode them into 'value'.",
        )
    return df.select([convert(kinds[name]) for name, convert in COLUMNS.items() if name in kinds])
