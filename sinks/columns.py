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
from eos.sinks._message_names import (
    ALL_FIELDS,
    DELAYED,
    FIELD,
    NOT_KEPT,
    OF_SOURCE,
    as_value,
    check_all_are_fields,
    message_names,
    origin_of,
    record_fields,
)

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


def _message_key(kind: DataType) -> str:
    _check_text("__key", kind, "Cast it: CAST(__key AS STRING).")
    return "message_key"


def _boolean(name: str) -> Callable[[DataType], str]:
    def check(kind: DataType) -> str:
        if not isinstance(kind, BooleanType):
            raise InputError(f"Column {name!r} is {kind.simpleString()}: it must be boolean.")
        return name

    return check


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
    "message_key": _message_key,
    "key_is_binary": _boolean("key_is_binary"),
    "is_tombstone": _boolean("is_tombstone"),
}
"""Column -> how its type is checked, and the SQL that brings it to the form that tasks take."""


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
            (binary), partition (long), topic, key_is_binary and is_tombstone (boolean), and with
            pairs message_key; the optional ones only where they were given.
        layout: which columns of the DataFrame they are.
    """

    rows: DataFrame
    layout: Layout

    @property
    def value_type(self) -> pa.DataType | None:
        """See ``Layout``."""
        return self.layout.value_type


@dataclass(frozen=True)
class Layout:
    """Which columns of a DataFrame are which of the messages'.

    Attributes:
        names: column of the messages -> the DataFrame's; only those that are written, in the order
            of ``COLUMNS``. Without ``value``, when it is made of ``record``.
        record: the columns that are the fields of ``value``; none when it is a column itself.
        kinds: column of the messages -> its type.
        value_type: of the column ``value`` (with a key_value schema, of a struct of key and value)
            before it became JSON; None without a schema.
        json: the columns that become JSON text.
        own: the DataFrame's columns that are the message's own, and not the value's.
    """

    names: dict[str, str]
    record: tuple[str, ...]
    kinds: dict[str, DataType]
    value_type: pa.DataType | None
    json: tuple[str, ...]
    own: tuple[str, ...]

    @property
    def partition_may_be_none(self) -> bool:
        """Whether the partition is the source's, which says -1 of a topic that has none."""
        return self.names.get("partition") == OF_SOURCE["partition"]


def select_columns(
    df: DataFrame,
    *,
    names_topics: bool = False,
    schema: Schema | None = None,
    metadata: bool = True,
) -> MessageColumns:
    """The columns of messages, in the form that tasks take.

    Raises:
        InputError: see ``layout_of``.
    """
    layout = layout_of(df.schema, names_topics=names_topics, schema=schema, metadata=metadata)
    named = df
    if layout.record or any(ours != name for ours, name in layout.names.items()):
        fields = ", ".join(_quoted(name) for name in layout.record)
        given = {ours: _quoted(name) for ours, name in layout.names.items()}
        if layout.partition_may_be_none:
            given["partition"] = f"NULLIF({given['partition']}, -1)"
        named = df.selectExpr(
            *([f"struct({fields}) AS value"] if layout.record else []),
            *(f"{name} AS `{ours}`" for ours, name in given.items()),
        )
    encoded = {} if schema is None else {name: name for name in schema.columns}
    encoded |= {name: f"{_TO_JSON.format(column=name)} AS {name}" for name in layout.json}
    wanted = [encoded.get(name) or COLUMNS[name](kind) for name, kind in layout.kinds.items()]
    # Spark needs 4 ms to find out that a selection changes nothing (measured).
    rows = named if wanted == named.columns else named.selectExpr(*wanted)
    return MessageColumns(rows, layout)


def layout_of(
    columns: StructType,
    *,
    names_topics: bool = False,
    schema: Schema | None = None,
    metadata: bool = True,
) -> Layout:
    """Which of ``columns`` are which of the messages', with their types checked.

    Args:
        names_topics: each row says in ``topic`` where it goes; otherwise that column is left out,
            because an option goes before it (as in Spark's Kafka sink).
        schema: of the values. One of records takes whole rows: without a column ``value`` that is a
            struct, all columns are the record's fields, but for those of the message, by their
            exact names: ``__key``, ``__eventTime``, ``__topic`` and so on.
        metadata: False: no column is the message's own; all are the value's.

    Raises:
        InputError: a column is missing, unknown or of the wrong type; the message names it.
    """
    _check_no_column_comes_twice(columns)
    types = {field.name: field.dataType for field in columns.fields}
    values = ("value",) if schema is None else schema.columns
    record: tuple[str, ...] = ()
    whole_rows = _takes_whole_rows(types, schema, metadata=metadata)
    if metadata:
        names = _own_names(columns, whole_rows=whole_rows, is_pair=len(values) > 1)
    else:
        check_all_are_fields(columns.fields)
        names = {} if whole_rows else {name: name for name in values if name in types}
    if whole_rows:
        record = record_fields(columns.fields, names) if metadata else tuple(columns.names)
        if not record:
            raise InputError("There are no columns for the record, only those of the message.")
        value = StructType([columns[name] for name in record])
        kinds = {"value": value, **{ours: types[name] for ours, name in names.items()}}
    else:
        others = [name for name in types if name not in {*names.values(), *NOT_KEPT}]
        kinds = {ours: types[name] for ours, name in names.items()}
        _check_all_are_known(others, kinds, columns.fields)
    _check_names(kinds, names_topics=names_topics)
    given = [name for name in COLUMNS if name in kinds and (name != "topic" or names_topics)]
    for name in given:
        if schema is None or name not in schema.columns:
            COLUMNS[name](kinds[name])
    return Layout(
        names={name: names[name] for name in given if name in names},
        record=record,
        kinds={name: kinds[name] for name in given},
        value_type=_value_type(kinds, schema),
        json=() if schema is None else schema.json_columns,
        own=tuple(names.values()),
    )


def _check_no_column_comes_twice(columns: StructType) -> None:
    lower = [name.lower() for name in columns.names]  # Spark would not tell them apart either
    twice = next((name for name in lower if lower.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"There are two columns {twice!r}.", hint="Drop or rename one of them.")


def _own_names(columns: StructType, *, whole_rows: bool, is_pair: bool) -> dict[str, str]:
    """``message_names``; a struct ``value`` may be meant as one field of the record."""
    is_struct = "value" in columns.names and isinstance(columns["value"].dataType, StructType)
    if not whole_rows and is_struct:
        _check_is_no_field(columns)
    otherwise = ALL_FIELDS
    if not whole_rows and is_struct and not is_pair:
        otherwise = f"Or make the record the value: {as_value(columns.fields)}"
    return message_names(
        columns.fields, whole_rows=whole_rows, is_pair=is_pair, otherwise=otherwise
    )


def _check_is_no_field(columns: StructType) -> None:
    """A struct that is one of a record's fields is not its whole value."""
    if origin_of(columns["value"]) == FIELD:
        raise InputError(
            "Column 'value' is one field of the records that were read, and would be written as "
            "the whole value.",
            hint=f"Make the record the value: {as_value(columns.fields)}.",
        )


def _check_all_are_known(
    others: list[str], kinds: dict[str, DataType], columns: list[StructField]
) -> None:
    if "value" not in kinds:
        raise InputError(
            f"There is no column 'value'; columns are {', '.join([*kinds, *others]) or 'none'}.",
            hint=_ENCODE,
        )
    if others:
        hint = "Drop them, or encode them into 'value'."
        if isinstance(kinds["value"], StructType):
            hint = f"Drop them. Or, where 'value' is a field of the record: {as_value(columns)}."
        raise InputError(
            f"Columns {', '.join(map(repr, others))} would not be written: a sink takes "
            f"value, {', '.join(OF_SOURCE)}.",
            hint=hint,
        )


def _check_names(kinds: dict[str, DataType], *, names_topics: bool) -> None:
    if any(name in DELAYED for name in kinds):
        raise InputError(
            "Delayed delivery does not go together with transactions.",
            hint="Drop the column, and let consumers wait: put the moment into a property.",
        )
    if names_topics and "topic" not in kinds:
        raise InputError(
            "There is no column 'topic', and the sink has no option of that name.",
            hint="Set the option for one topic; add the column for many (__topic in whole rows).",
        )


def _takes_whole_rows(kinds: dict[str, DataType], schema: Schema | None, *, metadata: bool) -> bool:
    if schema is None or isinstance(schema, PrimitiveSchema) or len(schema.columns) > 1:
        return False
    return not metadata or not isinstance(kinds.get("value"), StructType)


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
    _check_has_schema(wanted)
    kind = to_arrow_type(wanted, timezone="UTC")
    schema.writer(kind)
    return kind


def _check_has_schema(kind: DataType, path: str | None = None) -> None:
    """Types of Spark's own, VARIANT for one, are something else in Arrow: they are found here.

    ``path``: None for the value itself; a column may have an empty name.
    """
    match kind:
        case StructType():
            for field in kind.fields:
                inner = field.name if path is None else f"{path}.{field.name}"
                _check_has_schema(field.dataType, inner)
        case ArrayType():
            _check_has_schema(kind.elementType, f"{path or ''}[]")
        case MapType():
            _check_has_schema(kind.keyType, f"{path or ''}{{}}")
            _check_has_schema(kind.valueType, f"{path or ''}{{}}")
        case _ if not isinstance(kind, _IN_SCHEMAS):
            where = "The value" if path is None else f"Column {path!r}"
            raise InputError(
                f"{where} is {kind.simpleString()}, which no schema has.",
                hint="Cast it, to string for example, or drop it.",
            )
