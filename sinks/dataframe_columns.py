"""Converts a user's DataFrame to the columns that a writing task takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as t

from eos.errors import InputError
from eos.schemas import PrimitiveSchema, Schema
from eos.sinks import spark_compat
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
    t.BooleanType, t.ByteType, t.ShortType, t.IntegerType, t.LongType, t.FloatType, t.DoubleType,
    t.DecimalType, t.StringType, t.BinaryType, t.DateType, t.TimestampType, t.TimestampNTZType,
)  # fmt: skip
_TEXT: Final = (t.StringType, t.BinaryType)
_ENCODE: Final = (
    "Choose a schema for whole rows, for example schema='json'; or encode them first: "
    "to_json(struct('*')) AS value."
)


_CAST: Final = "Cast it: CAST({name} AS STRING)."
_WHOLE: Final = (t.ByteType, t.ShortType, t.IntegerType, t.LongType)

COLUMNS: Final[dict[str, tuple[tuple[type[t.DataType], ...], str, str | None]]] = {
    "value": (_TEXT, "string or binary", _ENCODE),
    "key": (_TEXT, "string or binary", _CAST),
    "event_time": (
        (t.TimestampType, t.LongType, t.IntegerType),
        "a timestamp, or whole milliseconds since 1970 as long",
        None,
    ),
    "properties": ((t.MapType,), "map<string,string>", None),
    "ordering_key": (_TEXT, "string or binary", _CAST),
    "partition": (_WHOLE, "a whole number, from 0 on", None),
    "topic": ((t.StringType,), "string", None),
    "message_key": (_TEXT, "string or binary", _CAST),
    "key_is_binary": ((t.BooleanType,), "boolean", None),
    "is_tombstone": ((t.BooleanType,), "boolean", None),
}
"""Column of the messages -> its types in Spark, the same in words, and the hint for another one."""


def _check_kind(column: str, name: str, kind: t.DataType) -> None:
    """Check the type of the messages' ``column``, which the DataFrame calls ``name``."""
    kinds, wanted, hint = COLUMNS[column]
    if column == "event_time" and isinstance(kind, t.TimestampNTZType):
        raise InputError(
            f"Column {name!r} is a timestamp without time zone, so its moment is unknown.",
            hint=f"Convert it from its time zone: to_utc_timestamp({name}, 'Europe/Berlin').",
        )
    fits = isinstance(kind, kinds)
    if isinstance(kind, t.MapType):
        fits &= isinstance(kind.keyType, t.StringType) and isinstance(kind.valueType, t.StringType)
    if not fits:
        raise InputError(
            f"Column {name!r} is {kind.simpleString()}: it must be {wanted}.",
            hint=hint and hint.replace("{name}", name),
        )


def _converted(name: str, kind: t.DataType) -> str:
    """Return the SQL that converts a column to the form that tasks take."""
    match name:
        case "event_time" if isinstance(kind, t.TimestampType):
            return "unix_millis(event_time) AS event_time"
        case "event_time" | "partition":
            return f"CAST({name} AS LONG) AS {name}"
        case "ordering_key":
            return "CAST(ordering_key AS BINARY) AS ordering_key"
    return name


_TO_JSON: Final = (
    # In UTC: otherwise the text depends on the session's time zone.
    "to_json({column}, map('timeZone', 'UTC', "
    "'timestampFormat', \"yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX\", "
    "'timestampNTZFormat', \"yyyy-MM-dd'T'HH:mm:ss.SSSSSS\"))"
)


class MessageColumns(NamedTuple):
    """The rows that tasks get.

    Attributes:
        rows: value, key, event_time (long, milliseconds), properties (map of strings), ordering_key
            (binary), partition (long), topic, key_is_binary and is_tombstone (boolean), and with
            pairs message_key; optional ones only if they were given.
        layout: which columns of the DataFrame they are.
    """

    rows: DataFrame
    layout: Layout


@dataclass(frozen=True)
class Layout:
    """The meaning of a DataFrame's columns.

    Attributes:
        names: column of the messages -> the DataFrame's column; only those that are written, in
            the order of ``COLUMNS``. Without ``value`` if it is made of ``record``.
        record: the columns that are the fields of ``value``; empty if it is a column itself.
        kinds: column of the messages -> its type.
        value_type: the type of ``value`` (with a key_value schema, of a struct of key and value)
            before it became JSON; None without a schema.
        json: the columns that become JSON text.
        own: the DataFrame's columns that are the message's own.
    """

    names: dict[str, str]
    record: tuple[str, ...]
    kinds: dict[str, t.DataType]
    value_type: pa.DataType | None
    json: tuple[str, ...]
    own: tuple[str, ...]

    @property
    def partition_may_be_minus_one(self) -> bool:
        """Whether the partition is the source's: it is -1 for topics without partitions."""
        return self.names.get("partition") == OF_SOURCE["partition"]


def select_columns(
    df: DataFrame,
    *,
    names_topics: bool = False,
    schema: Schema | None = None,
    metadata: bool = True,
) -> MessageColumns:
    """Select the columns of messages, in the form that tasks take. Errors as of ``layout_of``."""
    layout = layout_of(df.schema, names_topics=names_topics, schema=schema, metadata=metadata)
    named = df
    if layout.record or any(ours != name for ours, name in layout.names.items()):
        fields = ", ".join(_quoted(name) for name in layout.record)
        given = {ours: _quoted(name) for ours, name in layout.names.items()}
        if layout.partition_may_be_minus_one:
            given["partition"] = f"NULLIF({given['partition']}, -1)"
        named = df.selectExpr(
            *([f"struct({fields}) AS value"] if layout.record else []),
            *(f"{name} AS `{ours}`" for ours, name in given.items()),
        )
    encoded = {} if schema is None else {name: name for name in schema.columns}
    encoded |= {name: f"{_TO_JSON.format(column=name)} AS {name}" for name in layout.json}
    wanted = [encoded.get(name) or _converted(name, kind) for name, kind in layout.kinds.items()]
    # A selection that changes nothing costs Spark 4 ms (measured).
    rows = named if wanted == named.columns else named.selectExpr(*wanted)
    return MessageColumns(rows, layout)


def layout_of(
    columns: t.StructType,
    *,
    names_topics: bool = False,
    schema: Schema | None = None,
    metadata: bool = True,
) -> Layout:
    """Find the meaning of each of ``columns``, and check their types.

    Args:
        names_topics: rows name their topics in a column ``topic``; otherwise it is left out,
            because an option overrides it (as in Spark's Kafka sink).
        schema: of the values. A schema of records takes whole rows: without a column ``value`` that
            is a struct, all columns are the record's fields, except the message's own, by their
            exact names: ``__key``, ``__eventTime``, ``__topic`` and so on.
        metadata: False: no column is the message's own; all belong to the value.

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
            raise InputError("The rows have no columns for the record, only the message's own.")
        value = t.StructType([columns[name] for name in record])
        kinds = {"value": value, **{ours: types[name] for ours, name in names.items()}}
    else:
        others = [name for name in types if name not in {*names.values(), *NOT_KEPT}]
        kinds = {ours: types[name] for ours, name in names.items()}
        _check_all_are_known(others, kinds, columns.fields)
    _check_names(kinds, names_topics=names_topics)
    given = [name for name in COLUMNS if name in kinds and (name != "topic" or names_topics)]
    for name in given:
        if schema is None or name not in schema.columns:
            _check_kind(name, names.get(name, name), kinds[name])
    return Layout(
        names={name: names[name] for name in given if name in names},
        record=record,
        kinds={name: kinds[name] for name in given},
        value_type=_value_type(kinds, schema),
        json=() if schema is None else schema.json_columns,
        own=tuple(names.values()),
    )


def _check_no_column_comes_twice(columns: t.StructType) -> None:
    lower = [name.lower() for name in columns.names]  # Spark ignores case, too
    twice = next((name for name in lower if lower.count(name) > 1), None)
    if twice is not None:
        raise InputError(
            f"Two columns are named {twice!r}, in upper or lower case.",
            hint="Drop or rename one of them.",
        )


def _own_names(columns: t.StructType, *, whole_rows: bool, is_pair: bool) -> dict[str, str]:
    # A struct `value` may be meant as one field of the record.
    is_struct = "value" in columns.names and isinstance(columns["value"].dataType, t.StructType)
    if not whole_rows and is_struct:
        _check_value_is_not_a_field(columns)
    otherwise = ALL_FIELDS
    if not whole_rows and is_struct and not is_pair:
        otherwise = f"Or make the record the value: {as_value(columns.fields)}"
    return message_names(
        columns.fields, whole_rows=whole_rows, is_pair=is_pair, otherwise=otherwise
    )


def _check_value_is_not_a_field(columns: t.StructType) -> None:
    if origin_of(columns["value"]) == FIELD:
        raise InputError(
            "Column 'value' is one field of the records that were read, but would be written as "
            "the whole value.",
            hint=f"Make the record the value: {as_value(columns.fields)}.",
        )


def _check_all_are_known(
    others: list[str], kinds: dict[str, t.DataType], columns: list[t.StructField]
) -> None:
    if "value" not in kinds:
        raise InputError(
            f"Column 'value' is missing; columns are {', '.join([*kinds, *others]) or 'none'}.",
            hint=_ENCODE,
        )
    if others:
        hint = "Drop them, or encode them into 'value'."
        if isinstance(kinds["value"], t.StructType):
            hint = f"Drop them. Or, if 'value' is a field of the record: {as_value(columns)}."
        raise InputError(
            f"Columns {', '.join(map(repr, others))} are unknown: a sink writes "
            f"value, {', '.join(OF_SOURCE)}.",
            hint=hint,
        )


def _check_names(kinds: dict[str, t.DataType], *, names_topics: bool) -> None:
    if any(name in DELAYED for name in kinds):
        raise InputError(
            "Delayed delivery does not work in transactions.",
            hint="Drop the column. Put the time into a property, and let consumers wait.",
        )
    if names_topics and "topic" not in kinds:
        raise InputError(
            "Column 'topic' is missing, and the sink's option topic is not set.",
            hint="Set the option for one topic; add the column for many (__topic in whole rows).",
        )


def _takes_whole_rows(
    kinds: dict[str, t.DataType], schema: Schema | None, *, metadata: bool
) -> bool:
    if schema is None or isinstance(schema, PrimitiveSchema) or len(schema.columns) > 1:
        return False
    return not metadata or not isinstance(kinds.get("value"), t.StructType)


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _value_type(kinds: dict[str, t.DataType], schema: Schema | None) -> pa.DataType | None:
    # A type that can't be written is refused here, before an attempt begins.
    if schema is None:
        return None
    wanted = kinds["value"]
    if len(schema.columns) > 1:
        if "key" not in kinds:
            raise InputError("Column 'key' is missing: a key_value schema needs it.")
        wanted = t.StructType([t.StructField(name, kinds[name]) for name in schema.columns])
    # Spark's own types would be written as whatever Arrow makes of them.
    check_has_schema(wanted)
    kind = spark_compat.arrow_type(wanted)
    schema.writer(kind)
    return kind


def check_has_schema(kind: t.DataType, path: str | None = None) -> None:
    """Raise InputError if a type in ``kind`` has no schema, although Arrow may have a similar one.

    ``path``: of the column, which may have an empty name; None for the value itself.
    """
    match kind:
        case t.StructType():
            for field in kind.fields:
                inner = field.name if path is None else f"{path}.{field.name}"
                check_has_schema(field.dataType, inner)
        case t.ArrayType():
            check_has_schema(kind.elementType, f"{path or ''}[]")
        case t.MapType():
            check_has_schema(kind.keyType, f"{path or ''}{{}}")
            check_has_schema(kind.valueType, f"{path or ''}{{}}")
        case _ if not isinstance(kind, _IN_SCHEMAS):
            where = "The value" if path is None else f"Column {path!r}"
            raise InputError(
                f"{where} is {kind.simpleString()}, which schemas can't represent.",
                hint="Make it another type, for example STRING, or drop it.",
            )
