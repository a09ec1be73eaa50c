"""The conversion of messages to the source's columns, without Spark."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eos.errors import ConfigurationError, IncompatibleSchema
from eos.ids import TopicName
from eos.schemas.reading import SchemaVersion, TooMuchAtOnce
from eos.sources._value_format import MALFORMED_REASON, MALFORMED_VALUE, ValueFormat
from eos.wire.binary_columns import cells_of
from eos.wire.byte_rows import ByteRows

logger = logging.getLogger(__name__)

_TIME: Final = pa.timestamp("us", tz="UTC")
_MIN_TIME_MS: Final = -62_135_596_800_000
_MAX_TIME_MS: Final = 253_402_300_799_999  # The years 1 to 9999, the range of Spark and Python.


@dataclass(frozen=True)
class SourceColumn:
    """One column: its type, the client's columns that it needs, and how it is made."""

    type: pa.DataType
    needs: tuple[str, ...]
    make: Callable[[TopicName, dict[str, pa.Array]], pa.Array]


def _same(name: str, kind: pa.DataType | None = None) -> SourceColumn:
    return SourceColumn(kind or pa.binary(), (name,), lambda _, columns: columns[name])


def _time(name: str) -> SourceColumn:
    def make(topic: TopicName, columns: dict[str, pa.Array]) -> pa.Array:
        times = columns[name]
        # A producer may set any number, and one that Spark can't represent must not end a query.
        numbers = times.view(pa.int64())
        known = pc.and_(
            pc.greater_equal(numbers, _MIN_TIME_MS), pc.less_equal(numbers, _MAX_TIME_MS)
        )
        if pc.all(known).as_py() is False:
            row = pc.index(known, False).as_py()
            logger.warning(
                "%s: a message has the %s %d, in milliseconds since 1970. It becomes null, because "
                "Spark supports only the years 1 to 9999.",
                topic,
                name,
                numbers[row].as_py(),
            )
        return pc.if_else(known, times, pa.scalar(None, times.type)).cast(_TIME)

    return SourceColumn(_TIME, (name,), make)


def _topic(topic: TopicName, columns: dict[str, pa.Array]) -> pa.Array:
    return pa.repeat(pa.scalar(str(topic.base)), len(columns["entry"]))


def _partition(topic: TopicName, columns: dict[str, pa.Array]) -> pa.Array:
    return pa.repeat(pa.scalar(_index(topic), pa.int32()), len(columns["entry"]))


def _index(topic: TopicName) -> int:
    return -1 if topic.partition_index is None else topic.partition_index


def _message_id(topic: TopicName, columns: dict[str, pa.Array]) -> pa.Array:
    # Like the Java client's MessageId.toByteArray: MessageIdData of PulsarApi.proto.
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
    # Versions are eight bytes, big endian.
    versions = columns["schema_version"].dictionary_encode()
    numbers = [
        int.from_bytes(one, "big", signed=True)
        if one is not None and len(one) == _VERSION_BYTES
        else None
        for one in versions.dictionary.to_pylist()
    ]
    return pa.array(numbers, pa.int64()).take(versions.indices)


_VERSION_BYTES: Final = 8

# The message's own columns, in their order.
METADATA: Final = {
    "__key": _same("key"),
    # Of the client's columns the entry alone is needed, for the number of rows.
    "__topic": SourceColumn(pa.string(), ("entry",), _topic),
    "__messageId": SourceColumn(pa.binary(), ("ledger", "entry", "batch_index"), _message_id),
    "__publishTime": _time("publish_time"),
    "__eventTime": _time("event_time"),
    "__messageProperties": _same("properties", pa.map_(pa.string(), pa.string())),
    "__partition": SourceColumn(pa.int32(), ("entry",), _partition),
    "__schemaVersion": SourceColumn(pa.int64(), ("schema_version",), _schema_version),
    "__sequenceId": _same("sequence_id", pa.int64()),
    "__keyIsBinary": _same("key_is_binary", pa.bool_()),
    "__orderingKey": _same("ordering_key"),
    "__isTombstone": SourceColumn(pa.bool_(), ("value",), lambda _, c: c["value"].is_null()),
}


# The place of a message's entry, which only archives have as columns: files have statistics of it.
PLACE: Final = {"__ledger": _same("ledger", pa.int64()), "__entry": _same("entry", pa.int64())}

# What an entry is encrypted with that could not be decrypted, with crypto_failure_action=consume.
ENCRYPTION: Final = {"__encryptionContext": _same("encryption_context", pa.string())}

_COLUMNS: Final = METADATA | PLACE | ENCRYPTION

_CELLS_AT_ONCE: Final = 4_000_000


def check_names(fields: Iterable[str], own: Iterable[str]) -> None:
    """Raise ConfigurationError if a field of the values has the name of a message's own column, or
    of a column for values that can't be read."""
    in_lower = {name.lower(): name for name in own}
    fields = list(fields)
    for name in (MALFORMED_VALUE, MALFORMED_REASON):
        if [field.lower() for field in fields].count(name.lower()) > 1:
            raise ConfigurationError(
                f"The values have a field {name!r}, which is also a column of mode=permissive.",
                hint="Choose another mode.",
            )
    for field in fields:
        if clash := in_lower.get(field.lower()):
            raise ConfigurationError(
                f"The values have a field {field!r}, which is also the message's column {clash!r}.",
                hint='Read them without metadata; or read bytes, schema="bytes", and decode them '
                "in the query.",
            )


def check_storable(columns: Iterable[pa.Field], above: str = "") -> None:
    """Check that a table can have the columns.

    Raises:
        IncompatibleSchema: Parquet, or Spark's Delta reader, has no such type; names the field.
    """
    for field in columns:
        path, kind = f"{above}{field.name}", field.type
        inner, problem = [], ""
        if pa.types.is_struct(kind):
            inner = list(kind)
            problem = "" if inner else "is a record without fields"
        elif pa.types.is_list(kind) or pa.types.is_map(kind):
            inner = [kind.value_field if pa.types.is_list(kind) else kind.item_field]
            problem = "has items of type null" if pa.types.is_null(inner[0].type) else ""
        if problem:
            raise IncompatibleSchema(
                f"The field {path!r} {problem}, which a table can't have.",
                hint='Set schema="avro" or "json" with a schemaDefinition without it, or with '
                "another type: long, timestamp-millis for a java.util.Date in JSON.",
            )
        check_storable(inner, f"{path}.")


def value_columns(table: Iterable[str], values: Collection[str], uri: str, hint: str) -> set[str]:
    """Return a table's columns that come from values.

    Raises:
        IncompatibleSchema: it has some, and ``values``, the columns that values become now, has
            none of them.
    """
    own = {name.lower() for name in (*METADATA, *PLACE)}
    there = {name for name in table if name.lower() not in own}
    wanted = {name.lower() for name in values}
    # Each half of the rows would be null in the other's columns.
    if there and wanted.isdisjoint(name.lower() for name in there):
        raise IncompatibleSchema(
            f"Delta table {uri} has values as {', '.join(sorted(there))}; now they are read as "
            f"{', '.join(values)}.",
            hint=hint,
        )
    return there


@dataclass(frozen=True)
class RowFormat:
    """Converts messages to the columns ``names`` of a query."""

    values: ValueFormat
    names: tuple[str, ...]

    @property
    def needs(self) -> tuple[str, ...]:
        """The client's columns that are needed for them."""
        wanted = [_COLUMNS[name].needs for name in self.names if name not in self._fields]
        if self._has_values:
            wanted.append(self.values.needs)
        return tuple(dict.fromkeys(need for needs in wanted for need in needs)) or ("entry",)

    @property
    def schema(self) -> pa.Schema:
        """``names`` with their types in Arrow."""
        values = self.values.schema
        return pa.schema(
            [
                values.field(name) if name in values.names else pa.field(name, _COLUMNS[name].type)
                for name in self.names
            ]
        )

    @cached_property
    def _fields(self) -> frozenset[str]:
        return frozenset(self.values.schema.names)

    @property
    def fields(self) -> tuple[str, ...]:
        """The columns of ``names`` that come from values; the others are the message's own."""
        return tuple(name for name in self.names if name in self._fields)

    @cached_property
    def _rows_at_once(self) -> int:
        # A few bytes may become many rows, each with thousands of columns that were not written.
        return max(1, _CELLS_AT_ONCE // max(1, sum(map(cells_of, self.schema.types))))

    @cached_property
    def _has_values(self) -> bool:
        return bool(self.fields)

    def rows(
        self, batch: pa.RecordBatch, topic: TopicName, find: Callable[[bytes], SchemaVersion | None]
    ) -> Iterator[pa.RecordBatch]:
        """Convert messages that the client read from ``topic``, a partition's name; yield the rows
        in parts that fit in memory.

        ``find`` returns the schema of a version that a message names, or None.

        Raises:
            InputError, IncompatibleSchema: as ``ValueFormat.decode``.
        """
        step = self._rows_at_once
        todo = [batch.slice(start, step) for start in range(0, batch.num_rows, step)][::-1]
        while todo:
            part = todo.pop()
            try:
                rows = self._converted(part, topic, find)
            except TooMuchAtOnce:
                half = part.num_rows // 2
                todo += [part.slice(half), part.slice(0, half)]
            else:
                yield rows

    def _converted(
        self, batch: pa.RecordBatch, topic: TopicName, find: Callable[[bytes], SchemaVersion | None]
    ) -> pa.RecordBatch:
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        values: dict[str, pa.Array] = {}
        keep: pa.Array | None = None
        if self._has_values:
            values, keep = self.values.decode(topic, columns, find)
        made = [
            values[name] if name in values else _COLUMNS[name].make(topic, columns)
            for name in self.names
        ]
        rows = pa.RecordBatch.from_arrays(made, names=list(self.names))
        if not made:  # of a record without fields: only a struct has rows without columns
            rows = pa.RecordBatch.from_struct_array(pa.nulls(batch.num_rows, pa.struct([])))
        return rows if keep is None else rows.filter(keep)
