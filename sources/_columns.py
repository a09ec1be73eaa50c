"""The columns of the source: what a message becomes in Spark.

Names and types of those that begin with ``__`` are StreamNative's where it has them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_type
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
from eos.schemas.reading import SchemaVersion
from eos.wire.byte_rows import ByteRows
from sources._values import ValueFormat

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

METADATA: Final = {
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
"""What is known of each message beside its value, in its order."""


@dataclass(frozen=True)
class RowFormat:
    """The columns that a query gets, ``names``, and how they are made of messages."""

    values: ValueFormat
    names: tuple[str, ...]

    @property
    def needs(self) -> tuple[str, ...]:
        """What the client has to read for them."""
        wanted = [METADATA[name].needs for name in self.names if name in METADATA]
        if self._has_values:
            wanted.append(self.values.needs)
        return tuple(dict.fromkeys(need for needs in wanted for need in needs)) or ("entry",)

    @property
    def schema(self) -> pa.Schema:
        """``names`` with their types in Arrow."""
        values = self.values.schema
        return pa.schema(
            [
                values.field(name)
                if name in values.names
                else pa.field(name, to_arrow_type(METADATA[name].type, timezone="UTC"))
                for name in self.names
            ]
        )

    @cached_property
    def _has_values(self) -> bool:
        return any(name not in METADATA for name in self.names)

    def rows(
        self, batch: pa.RecordBatch, topic: TopicName, find: Callable[[bytes], SchemaVersion | None]
    ) -> pa.RecordBatch:
        """Rows of messages that the client read from ``topic``, a partition's name.

        Args:
            find: the schema of a version that a message names; None: there is none.

        Raises:
            InputError, IncompatibleSchema: as ``ValueFormat.decode``.
        """
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        values: dict[str, pa.Array] = {}
        keep: pa.Array | None = None
        if self._has_values:
            values, keep = self.values.decode(topic, columns, find)
        made = [
            values[name] if name in values else METADATA[name].make(topic, columns)
            for name in self.names
        ]
        rows = pa.RecordBatch.from_arrays(made, names=list(self.names))
        return rows if keep is None else rows.filter(keep)


def schema_of_source(values: ValueFormat, *, metadata: bool) -> StructType:
    """The columns that are there unless others are asked for.

    Raises:
        ConfigurationError: a field of the values has a name that the source uses itself.
    """
    fields = list(_value_fields(values))
    if clash := next((field.name for field in fields if field.name in METADATA), None):
        raise ConfigurationError(
            f"The values have a field {clash!r}, which is a column of the source.",
            hint='Read them as bytes, schema="bytes", and decode them in the query.',
        )
    if metadata:
        fields += [StructField(name, column.type) for name, column in METADATA.items()]
    return StructType(fields)


def _value_fields(values: ValueFormat) -> StructType:
    try:
        return from_arrow_schema(values.schema)
    except PySparkException as error:
        raise ConfigurationError(
            f"Spark has no type for what the values are: {error}.",
            hint='Read them as bytes, schema="bytes", and decode them in the query.',
        ) from None


def row_format(values: ValueFormat, schema: StructType) -> RowFormat:
    """For a schema that a user gave, or ``schema_of_source``.

    Raises:
        ConfigurationError: it has a column that is not there, or another type for one.
    """
    known = {field.name: field.dataType for field in schema_of_source(values, metadata=True)}
    for field in schema:
        if field.name not in known:
            raise ConfigurationError(
                f"There is no column {field.name!r}; columns are: {', '.join(known)}."
            )
        if field.dataType.simpleString() != known[field.name].simpleString():
            raise ConfigurationError(
                f"Column {field.name!r} is of type {known[field.name].simpleString()}, not "
                f"{field.dataType.simpleString()}.",
                hint="If the topic's schema has changed just now, load it again.",
            )
    return RowFormat(values, tuple(field.name for field in schema))
