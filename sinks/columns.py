"""From a user's DataFrame to the columns that a writing task takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from eos.errors import InputError
from eos.schemas import PrimitiveSchema, Schema

_IN_SCHEMAS: Final = (
    BooleanType, ByteType, ShortType, IntegerType, LongType, FloatType, DoubleType, DecimalType,
    StringType, BinaryType, DateType, TimestampType, TimestampNTZType,
)  # fmt: skip
_TEXT: Final = (StringType, BinaryType)
_ENCODE: Final = (
    "Choose a schema for whole rows, schema='json' for example; or encode them first: "
    "to_json(struct('*')) AS value."
)


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


_DELAYED: Final = ("deliver_at", "deliver_after")
_ROW_PREFIX: Final = "__"
"""How the columns of a whole row begin that are the message's, not the record's."""

# What `format("pulsar")` calls them when it reads: what was read can be written.
_OF_SOURCE: Final = {
    "__key": "key",
    "__eventTime": "event_time",
    "__messageProperties": "properties",
}
_ONE_NAME: Final = "Drop one of them: key or __key, event_time or __eventTime."

_TO_JSON: Final = (
    "to_json({column}, map('timeZone', 'UTC', "
    "'timestampFormat', \"yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX\", "
    "'timestampNTZFormat', \"yyyy-MM-dd'T'HH:mm:ss.SSSSSS\"))"
)


@dataclass(frozen=True)
class MessageColumns:
    """What the tasks get.

    Attributes:
        rows: value, key, event_time (long, milliseconds), properties (map of strings), ordering_key
            (binary), partition (long) and topic; the optional ones only where they were given.
        value_type: of the column ``value`` (with a key_value schema, of a struct of key and value)
            before it became JSON; None without a schema.
    """

    rows: DataFrame
    value_type: pa.DataType | None


@dataclass(frozen=True)
class Layout:
    """Which columns of a DataFrame are which of the messages'.

    Attributes:
        names: column of the messages -> the DataFrame's; only those that are written, in the order
            of ``COLUMNS``. Without ``value``, when it is made of ``record``.
        record: the columns that are the fields of ``value``; none when it is a column itself.
        kinds: column of the messages -> its type.
        value_type: see ``MessageColumns``.
        json: the columns that become JSON text.
    """

    names: dict[str, str]
    record: tuple[str, ...]
    kinds: dict[str, DataType]
    value_type: pa.DataType | None
    json: tuple[str, ...]


def select_columns(
    df: DataFrame, *, names_topics: bool = False, schema: Schema | None = None
) -> MessageColumns:
    """The columns of messages, in the form that tasks take.

    Raises:
        InputError: see ``layout_of``.
    """
    layout = layout_of(df.schema, names_topics=names_topics, schema=schema)
    named = df
    if layout.record or any(ours != name for ours, name in layout.names.items()):
        fields = ", ".join(_quoted(name) for name in layout.record)
        named = df.selectExpr(
            *([f"struct({fields}) AS value"] if layout.record else []),
            *(f"{_quoted(name)} AS `{ours}`" for ours, name in layout.names.items()),
        )
    encoded = {} if schema is None else {name: name for name in schema.columns}
    encoded |= {name: f"{_TO_JSON.format(column=name)} AS {name}" for name in layout.json}
    wanted = [encoded.get(name) or COLUMNS[name](kind) for name, kind in layout.kinds.items()]
    # Spark needs 4 ms to find out that a selection changes nothing (measured).
    rows = named if wanted == named.columns else named.selectExpr(*wanted)
    return MessageColumns(rows, layout.value_type)


def layout_of(
    columns: StructType, *, names_topics: bool = False, schema: Schema | None = None
) -> Layout:
    """Which of ``columns`` are which of the messages', with their types checked.

    Args:
        names_topics: each row says in ``topic`` where it goes; otherwise that column is left out,
            because an option goes before it (as in Spark's Kafka sink).
        schema: of the values. One of records takes whole rows: without a column ``value`` that is a
            struct, all columns are the record's fields, but for those of the message, which begin
            with two underscores: ``__key``, ``__event_time``, ``__topic`` and so on.

    Raises:
        InputError: a column is missing, unknown or of the wrong type; the message names it.
    """
    lower = [name.lower() for name in columns.names]  # Spark would not tell them apart either
    twice = next((name for name in lower if lower.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"There are two columns {twice!r}.", hint="Drop or rename one of them.")
    kinds = {field.name: field.dataType for field in columns.fields}
    record: tuple[str, ...] = ()
    if not _takes_whole_rows(kinds, schema):
        names = {_OF_SOURCE.get(name, name): name for name in columns.names}
        kinds = {ours: kinds[name] for ours, name in names.items()}
        if len(names) < len(columns.names):
            raise InputError("A message's key, time or properties come twice.", hint=_ONE_NAME)
    else:
        record, names = _whole_rows(columns.names)
        value = StructType([columns[name] for name in record])
        kinds = {"value": value, **{ours: kinds[name] for ours, name in names.items()}}
    _check_names(kinds, names_topics=names_topics)
    given = [name for name in COLUMNS if name in kinds and (name != "topic" or names_topics)]
    encoded = () if schema is None else schema.columns
    for name in given:
        if name not in encoded:
            COLUMNS[name](kinds[name])
    return Layout(
        names={name: names[name] for name in given if name in names},
        record=record,
        kinds={name: kinds[name] for name in given},
        value_type=_value_type(kinds, schema),
        json=() if schema is None else schema.json_columns,
    )


def _check_names(kinds: dict[str, DataType], *, names_topics: bool) -> None:
    if "value" not in kinds:
        raise InputError(
            f"There is no column 'value'; columns are {', '.join(kinds) or 'none'}.",
            hint=_ENCODE,
        )
    if names_topics and "topic" not in kinds:
        raise InputError(
            "There is no column 'topic', and the sink has no option of that name.",
            hint="Set the option for one topic; add the column for many (__topic in whole rows).",
        )
    unknown = [name for name in kinds if name not in COLUMNS]
    if any(name.startswith(_DELAYED) for name in unknown):
        raise InputError(
            "Delayed delivery does not go together with transactions.",
            hint="Drop the column, and let consumers wait: put the moment into a property.",
        )
    if unknown:
        raise InputError(
            f"Columns {', '.join(map(repr, unknown))} would not be written: a sink takes "
            f"{', '.join(COLUMNS)}.",
            hint="Drop them, or encode them into 'value'.",
        )


def _takes_whole_rows(kinds: dict[str, DataType], schema: Schema | None) -> bool:
    if schema is None or isinstance(schema, PrimitiveSchema):
        return False
    has_all = len(schema.columns) > 1 and kinds.keys() >= set(schema.columns)
    return not has_all and not isinstance(kinds.get("value"), StructType)


def _whole_rows(columns: list[str]) -> tuple[tuple[str, ...], dict[str, str]]:
    """The fields of the record, and the columns of messages beside it, by what they are called."""
    ours = {f"{_ROW_PREFIX}{name}": name for name in (*COLUMNS, *_DELAYED) if name != "value"}
    ours |= _OF_SOURCE
    fields = tuple(name for name in columns if not name.startswith(_ROW_PREFIX))
    strange = [name for name in columns if name.startswith(_ROW_PREFIX) and name not in ours]
    if strange:
        known = ", ".join(f"{_ROW_PREFIX}{name}" for name in COLUMNS if name != "value")
        raise InputError(
            f"Columns {', '.join(map(repr, strange))}: what begins with {_ROW_PREFIX} is the "
            f"message's own, and a message has {known}.",
            hint="Rename or drop them.",
        )
    if not fields:
        raise InputError("There are no columns for the record, only those of the message.")
    names = {ours[name]: name for name in columns if name in ours}
    if len(names) + len(fields) < len(columns):
        raise InputError("A message's time or properties come twice.", hint=_ONE_NAME)
    return fields, names


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _value_type(kinds: dict[str, DataType], schema: Schema | None) -> pa.DataType | None:
    """Found here, so that a type that can't be written is refused before anything is begun."""
    if schema is None:
        return None
    wanted = kinds["value"]
    if len(schema.columns) > 1:
        if "key" not in kinds:
            raise InputError("There is no column 'key': a key_value schema needs one.")
        wanted = StructType([StructField(name, kinds[name]) for name in schema.columns])
    _check_has_schema(wanted, "")
    kind = to_arrow_type(wanted, timezone="UTC")
    schema.writer(kind)
    return kind


def _check_has_schema(kind: DataType, path: str) -> None:
    """Types of Spark's own, VARIANT for one, are something else in Arrow: they are found here."""
    match kind:
        case StructType():
            for field in kind.fields:
                _check_has_schema(field.dataType, f"{path}.{field.name}".lstrip("."))
        case ArrayType():
            _check_has_schema(kind.elementType, f"{path}[]")
        case MapType():
            _check_has_schema(kind.keyType, f"{path}{{}}")
            _check_has_schema(kind.valueType, f"{path}{{}}")
        case _ if not isinstance(kind, _IN_SCHEMAS):
            where = f"Column {path!r}" if path else "The value"
            raise InputError(
                f"{where} is {kind.simpleString()}, which no schema has.",
                hint="Cast it, to string for example, or drop it.",
            )
