"""The columns of the source: what a message becomes in Spark.

Names and types of those that begin with ``__`` are StreamNative's where it has them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from eos.errors import ConfigurationError
from eos.ids import TopicName
from eos.wire.byte_rows import ByteRows

_TIME: Final = pa.timestamp("us", tz="UTC")
_MAX_TIME_MS: Final = 253_402_300_799_999
"""The end of the year 9999, the last one that Spark and Python know."""


@dataclass(frozen=True)
class SourceColumn:
    """One column: its type in Spark, which of the client's columns it needs, and how it is made."""

    type: DataType
    needs: tuple[str, ...]
    make: Callable[[TopicName, dict[str, pa.Array]], pa.Array]


def _same(name: str) -> SourceColumn:
    return SourceColumn(BinaryType(), (name,), lambda _, columns: columns[name])


def _time(name: str) -> SourceColumn:
    def make(_: TopicName, columns: dict[str, pa.Array]) -> pa.Array:
        times = columns[name]
        # A writer may say any number, and one that Spark can't show must not end a query.
        known = pc.less_equal(times.view(pa.int64()), _MAX_TIME_MS)
        return pc.if_else(known, times, pa.scalar(None, times.type)).cast(_TIME)

    return SourceColumn(TimestampType(), (name,), make)


def _topic(topic: TopicName, columns: dict[str, pa.Array]) -> pa.Array:
    return pa.repeat(pa.scalar(str(topic.base)), len(columns["entry"]))


def _partition(topic: TopicName, columns: dict[str, pa.Array]) -> pa.Array:
    return pa.repeat(pa.scalar(_index(topic), pa.int32()), len(columns["entry"]))


def _index(topic: TopicName) -> int:
    return -1 if topic.partition_index is None else topic.partition_index


def _message_id(topic: TopicName, columns: dict[str, pa.Array]) -> pa.Array:
    """As the Java client's ``MessageId.toByteArray``: MessageIdData of PulsarApi.proto."""
    rows = ByteRows(len(columns["entry"]))
    for tag, name in ((1 << 3, "ledger"), (2 << 3, "entry")):
        rows.byte(tag)
        rows.varint(columns[name].to_numpy())
    rows.byte(3 << 3)
    rows.varint(np.full(len(columns["entry"]), _index(topic), np.int64))
    rows.byte(4 << 3)
    rows.varint(columns["batch_index"].to_numpy().astype(np.int64))
    return rows.array()


def _schema_version(_: TopicName, columns: dict[str, pa.Array]) -> pa.Array:
    """Brokers count versions in eight bytes, big endian."""
    versions = columns["schema_version"].dictionary_encode()
    numbers = [
        int.from_bytes(one, "big") if one is not None and len(one) == _VERSION_BYTES else None
        for one in versions.dictionary.to_pylist()
    ]
    return pa.array(numbers, pa.int64()).take(versions.indices)


_VERSION_BYTES: Final = 8

COLUMNS: Final = {
    "value": _same("value"),
    "__key": _same("key"),
    "__topic": SourceColumn(StringType(), ("entry",), _topic),
    "__messageId": SourceColumn(BinaryType(), ("ledger", "entry", "batch_index"), _message_id),
    "__publishTime": _time("publish_time"),
    "__eventTime": _time("event_time"),
    "__messageProperties": SourceColumn(
        MapType(StringType(), StringType()), ("properties",), lambda _, c: c["properties"]
    ),
    "__partition": SourceColumn(IntegerType(), ("entry",), _partition),
    "__schemaVersion": SourceColumn(LongType(), ("schema_version",), _schema_version),
    "__sequenceId": SourceColumn(LongType(), ("sequence_id",), lambda _, c: c["sequence_id"]),
}
"""All columns, in their order."""


def schema_of_source(*, metadata: bool) -> StructType:
    """The columns that are there unless others are asked for."""
    names = COLUMNS if metadata else ("value",)
    return StructType([StructField(name, COLUMNS[name].type) for name in names])


def checked_names(schema: StructType) -> tuple[str, ...]:
    """The names in a schema that a user gave, or ``schema_of_source``.

    Raises:
        ConfigurationError: it has a column that is not there, or another type for one.
    """
    for field in schema:
        known = COLUMNS.get(field.name)
        if known is None:
            raise ConfigurationError(
                f"There is no column {field.name!r}; columns are: {', '.join(COLUMNS)}."
            )
        if field.dataType.simpleString() != known.type.simpleString():
            raise ConfigurationError(
                f"Column {field.name!r} is of type {known.type.simpleString()}, not "
                f"{field.dataType.simpleString()}."
            )
    return tuple(field.name for field in schema)


def needed_columns(names: tuple[str, ...]) -> tuple[str, ...]:
    """What the client has to read for the columns ``names``."""
    return tuple(dict.fromkeys(need for name in names for need in COLUMNS[name].needs)) or (
        "entry",
    )


def to_spark(batch: pa.RecordBatch, topic: TopicName, names: tuple[str, ...]) -> pa.RecordBatch:
    """The columns ``names`` of messages that the client read from ``topic``, a partition's name."""
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    made = [COLUMNS[name].make(topic, columns) for name in names]
    return pa.RecordBatch.from_arrays(made, names=list(names))
