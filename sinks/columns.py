"""From a user's DataFrame to the columns that a writing task takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql.types import (
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from eos.errors import InputError

_TEXT: Final = (StringType, BinaryType)
_ENCODE: Final = "Encode the rows first, for example to_json(struct('*')) AS value."


def _check_text(name: str, kind: DataType, hint: str) -> None:
    if not isinstance(kind, _TEXT):
        raise InputError(
            f"Column {name!r} is {kind.simpleString()}: it must be string or binary.", hint=hint
        )


def _value(kind: DataType) -> str:
    _check_text("value", kind, _ENCODE)
    return "value"


def _key(kind: DataType) -> str:
    _check_text("key", kind, "Cast it: CAST(key AS STRING).")
    return "key"


def _event_time(kind: DataType) -> str:
    if isinstance(kind, TimestampNTZType):
        raise InputError(
            "Column 'event_time' is a timestamp without time zone: which moment it means is open.",
            hint="Say which zone it is in: to_utc_timestamp(event_time, 'Europe/Berlin').",
        )
    if isinstance(kind, TimestampType):
        return "unix_millis(event_time) AS event_time"
    if isinstance(kind, LongType | IntegerType):
        return "CAST(event_time AS LONG) AS event_time"
    raise InputError(
        f"Column 'event_time' is {kind.simpleString()}: it must be a timestamp, or whole "
        "milliseconds since 1970 as long."
    )


def _properties(kind: DataType) -> str:
    text = isinstance(kind, MapType) and (
        isinstance(kind.keyType, StringType) and isinstance(kind.valueType, StringType)
    )
    if not text:
        raise InputError(
            f"Column 'properties' is {kind.simpleString()}: it must be map<string,string>."
        )
    return "properties"


def _ordering_key(kind: DataType) -> str:
    _check_text("ordering_key", kind, "Cast it: CAST(ordering_key AS STRING).")
    return "CAST(ordering_key AS BINARY) AS ordering_key"


def _partition(kind: DataType) -> str:
    if not isinstance(kind, ByteType | ShortType | IntegerType | LongType):
        raise InputError(
            f"Column 'partition' is {kind.simpleString()}: it must be a whole number, from 0 on."
        )
    return "CAST(partition AS LONG) AS partition"


def _topic(kind: DataType) -> str:
    if not isinstance(kind, StringType):
        raise InputError(f"Column 'topic' is {kind.simpleString()}: it must be string.")
    return "topic"


COLUMNS: Final[dict[str, Callable[[DataType], str]]] = {
    "value": _value,
    "key": _key,
    "event_time": _event_time,
    "properties": _properties,
    "ordering_key": _ordering_key,
    "partition": _partition,
    "topic": _topic,
}
"""Column -> how its type is checked, and the SQL that brings it to the form that tasks take."""


def select_columns(df: DataFrame, *, names_topics: bool = False) -> DataFrame:
    """``df`` as value (binary or string), key (string or binary), event_time (long,
    milliseconds), properties (map of strings), ordering_key (binary) and partition (long); the
    optional ones only where ``df`` has them.

    Args:
        names_topics: each row says in ``topic`` where it goes; otherwise that column is left out,
            because an option goes before it (as in Spark's Kafka sink).

    Raises:
        InputError: a column is missing, unknown or of the wrong type; the message names it.
    """
    kinds = {field.name: field.dataType for field in df.schema.fields}
    if len(kinds) < len(df.schema.fields):
        twice = next(name for name in kinds if df.columns.count(name) > 1)
        raise InputError(f"There are two columns {twice!r}.", hint="Drop or rename one of them.")
    if "value" not in kinds:
        raise InputError(
            f"There is no column 'value'; columns are {', '.join(kinds) or 'none'}.",
            hint=_ENCODE,
        )
    if names_topics and "topic" not in kinds:
        raise InputError(
            "There is no column 'topic', and the sink has no option of that name.",
            hint="Set the option for one topic; add the column for many.",
        )
    unknown = [name for name in kinds if name not in COLUMNS]
    if unknown:
        raise InputError(
            f"Columns {', '.join(map(repr, unknown))} would not be written: a sink takes "
            f"{', '.join(COLUMNS)}.",
            hint="Drop them, or encode them into 'value'.",
        )
    return df.selectExpr(
        *(
            convert(kinds[name])
            for name, convert in COLUMNS.items()
            if name in kinds and (name != "topic" or names_topics)
        )
    )
