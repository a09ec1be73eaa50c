"""Decodes the values of a topic's messages to columns, whatever schema version they have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import starmap
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eos.errors import IncompatibleSchema
from eos.schemas._schema_base import Schema
from eos.schemas._schema_properties import is_inline, pair_of
from eos.schemas._schema_text import side_by_side
from eos.schemas._user_schema import BYTES, declared
from eos.schemas.reading._avro_reader import AvroReader, JsonReader, avro_as_read, parsed
from eos.schemas.reading._column_reader import ColumnReader, PairReader, check_kind
from eos.schemas.reading._primitive_reader import PrimitiveReader
from eos.schemas.reading._protobuf_reader import ProtobufReader, protobuf_as_read
from eos.wire.binary_columns import FALSE, RowFailures
from eos.wire.commands import SchemaInfo, SchemaType

MAX_VALUE_BYTES: Final = 64 << 20  # decoding takes up to five times as much memory
_TOO_LONG: Final = f"The value is longer than {MAX_VALUE_BYTES >> 20} MiB."
_VERSION_BYTES: Final = 8
_AS_BYTES: Final = "Read them as bytes: PrimitiveSchema('bytes')."
_READERS: Final[dict[int, Callable[[SchemaInfo], ColumnReader]]] = {
    SchemaType.AVRO: AvroReader,
    SchemaType.JSON: JsonReader,
    SchemaType.PROTOBUF_NATIVE: ProtobufReader,
}


@dataclass(frozen=True)
class SchemaVersion:
    """A schema of a topic; ``number``: its version in the registry, if it has one."""

    info: SchemaInfo
    number: int | None = None

    def __str__(self) -> str:
        return "your schema" if self.number is None else f"schema version {self.number}"


@dataclass(frozen=True)
class DecodedValues:
    """Values as columns.

    Attributes:
        columns: a row for each value; all its columns are null if the value is null or malformed.
        failures: the malformed rows, and the reasons.
        refused: of ``decode_versions``: the reasons that apply to all messages of a version, and
            the error of each, which shows both schemas.
    """

    columns: pa.RecordBatch
    failures: RowFailures
    refused: Mapping[str, IncompatibleSchema] = field(default_factory=dict)


class ValueReader:
    """Reads the values of a topic with one schema, whatever version each was written with.

    Attributes:
        schema: of the columns: a record's fields; ``key`` and ``value`` of pairs; else ``value``.
        is_record: whether the values are records or pairs.
        is_pair: whether the values are pairs.
    """

    def __init__(
        self, reader: SchemaVersion, written: SchemaVersion, *, is_own: bool = False
    ) -> None:
        self._reader = reader
        self._written = written  # the default schema of values
        # The user gave ``reader``: it is also the schema of values for which the registry has none
        # that can be parsed.
        self._is_own = is_own
        self._column = _column_reader(reader.info)
        self.is_record = self._column.is_record
        self.is_pair = reader.info.type == SchemaType.KEY_VALUE
        fields = list(self._column.type) if self.is_record else []
        self.schema = pa.schema(fields if self.is_record else [("value", self._column.type)])

    def decode(
        self,
        values: pa.Array,
        keys: pa.Array | None = None,
        *,
        writer: SchemaVersion | None = None,
    ) -> DecodedValues:
        """Read values that were written with one version of the schema.

        Args:
            values: binary; a null is a message without a value.
            keys: of the messages, binary or text; needed for pairs with the encoding ``separated``.
            writer: the version that the messages name; None: the topic's schema.

        Raises:
            IncompatibleSchema: values of ``writer`` can't be read at all; the error shows both
                schemas.
            TooMuchAtOnce: several values together would become too large columns.
        """
        writer = self._parsable(writer or self._written)
        data, long = _without_long_values(values.cast(pa.binary()))
        if self.is_pair:
            data = _pairs(data, keys, writer.info)
        try:
            check_kind(writer.info, self._reader.info)
            column, failures = self._column.read(data, writer.info)
        except IncompatibleSchema as error:
            both = side_by_side(writer.info, self._reader.info, ("written:", "read:"))
            raise IncompatibleSchema(
                f"Messages of {writer} can't be read with {self._reader}: {error.message}{both}\n",
                hint=error.hint or "Give your own schema that can read both versions.",
            ) from error
        failures = RowFailures.merged([long, failures])
        return DecodedValues(self._batch(column), failures)

    def written(self, writer: SchemaVersion) -> pa.Schema:
        """Return the columns of a version's records or pairs, which this reader can read. Fields
        have the names that they are read as, such as that of a field with an alias."""
        kind = _named_as_read(writer.info, self._reader.info)
        return pa.schema(list(kind) if pa.types.is_struct(kind) else [])

    def _batch(self, column: pa.Array) -> pa.RecordBatch:
        columns = column.flatten() if self.is_record else [column]
        if not columns:  # a record without fields: without columns, a batch has no row count
            return pa.RecordBatch.from_struct_array(column)
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def decode_versions(
        self,
        values: pa.Array,
        keys: pa.Array | None,
        versions: pa.Array,
        find: Callable[[bytes], SchemaVersion | None],
    ) -> DecodedValues:
        """Read values that name different versions.

        Messages that name no version, or one that is not in the registry, are read with the user's
        schema; without one they are malformed, like messages of a version that can't be read.

        Args:
            values, keys: as for ``decode``.
            versions: binary, the version that each message names; null for none.
            find: returns the schema of a version, None if it is not in the registry; called once
                for each valid version in ``versions``.

        Raises:
            TooMuchAtOnce: as ``decode``.
        """
        encoded = versions.dictionary_encode()
        numbers = encoded.indices.fill_null(-1).to_numpy()
        batches: list[pa.RecordBatch] = []
        failures: list[RowFailures] = []
        refused: dict[str, IncompatibleSchema] = {}
        order = np.argsort(numbers, kind="stable")
        starts = np.flatnonzero(np.diff(numbers[order], prepend=-2))
        for rows in np.split(order, starts)[1:]:
            number = int(numbers[rows[0]])
            named = b"" if number < 0 else encoded.dictionary[number].as_py()
            taken = pa.array(rows)
            some, some_keys = values.take(taken), None if keys is None else keys.take(taken)
            try:
                found = self.decode(some, some_keys, writer=self._writer(named, find))
            except IncompatibleSchema as error:
                reason = error.message.splitlines()[0]
                refused[reason] = error
                found = DecodedValues(*self._all_malformed(some, reason))
            batches.append(found.columns)
            failures.append(found.failures.moved(rows))
        if len(batches) == 1:
            return DecodedValues(batches[0], failures[0], refused)
        if not batches or not len(self.schema):  # without columns, a table has no rows
            none, _ = self._all_malformed(values, "")
            return DecodedValues(none, RowFailures.merged(failures), refused)
        table = pa.Table.from_batches(batches).combine_chunks()
        back = np.argsort(order)
        (batch,) = table.take(pa.array(back)).combine_chunks().to_batches()
        return DecodedValues(batch, RowFailures.merged(failures), refused)

    def _writer(self, named: bytes, find: Callable[[bytes], SchemaVersion | None]) -> SchemaVersion:
        # ``named``: empty for messages without a version.
        found = find(named) if is_version(named) else None
        if found is not None:
            return found
        # As in the Java client. Without the user's schema the format is unknown, even if the bytes
        # fit the topic's schema (Java's ``AUTO_CONSUME`` returns bytes).
        if self._is_own or self._reader.info.type == SchemaType.NONE:
            return self._reader
        raise IncompatibleSchema(
            why_unknown(named),
            hint='If you know their schema, give it: schema="avro" or "json" with '
            'schemaDefinition, or the name of a single type, such as "string".',
        )

    def _parsable(self, writer: SchemaVersion) -> SchemaVersion:
        # A user may know the schema better than the registry, whose definition can't be parsed.
        if self._is_own and writer.info.type in (SchemaType.AVRO, SchemaType.JSON):
            try:
                parsed(writer.info)
            except IncompatibleSchema:
                return self._reader if self._reader.info.type == writer.info.type else writer
        return writer

    def _all_malformed(self, values: pa.Array, reason: str) -> tuple[pa.RecordBatch, RowFailures]:
        failures = RowFailures.of(values.is_valid().to_numpy(zero_copy_only=False), reason)
        return self._batch(pa.nulls(len(values), self._column.type)), failures


def is_version(named: bytes) -> bool:
    """Whether ``named``, of a message, can be a version: a number of eight bytes, big endian."""
    # A producer may send any bytes. Asked for a version of another length, brokers close the
    # connection; a negative one no registry has.
    return len(named) == _VERSION_BYTES and named[0] < 0x80


def why_unknown(named: bytes | None) -> str:
    """Explain why the version that a message names is unknown; None, or empty: it names none."""
    if not named:
        return "The message names no version of the topic's schema."
    if len(named) != _VERSION_BYTES:
        return f"The message names a schema version of {len(named)} bytes, which no registry has."
    number = int.from_bytes(named, "big", signed=True)
    return f"The message names schema version {number}, which is not in the registry."


def value_reader(
    registered: SchemaVersion | None, *, as_schema: Schema | None = None
) -> ValueReader:
    """Return a reader for the values of a topic.

    Args:
        registered: the topic's schema, which is read by default. None: the topic has no schema.
        as_schema: the user's schema, which is read instead.

    Raises:
        IncompatibleSchema: the schema has no columns. (``check_readable`` checks whether
            ``as_schema`` can read values of ``registered``.)
        ConfigurationError: ``as_schema`` has no definition.
    """
    written = registered or SchemaVersion(BYTES)
    if as_schema is None:
        return ValueReader(written, written)
    reader = SchemaVersion(declared(as_schema, written.info))
    if written.info.type == SchemaType.NONE:
        written = reader  # only the user knows the schema
    return ValueReader(reader, written, is_own=True)


def check_readable(as_schema: Schema, registered: SchemaVersion) -> None:
    """Raise ``IncompatibleSchema``, with both schemas, if ``as_schema`` can't read values of
    ``registered``."""
    none = pa.array([], pa.binary())
    value_reader(registered, as_schema=as_schema).decode(none, none)


def are_same_values(one: SchemaInfo, other: SchemaInfo) -> bool:
    """Whether values of both schemas become the same columns."""
    if (one.type, one.data) != (other.type, other.data):
        return False
    if one.type != SchemaType.KEY_VALUE:
        return True
    return all(starmap(are_same_values, zip(pair_of(one), pair_of(other), strict=True)))


def _without_long_values(values: pa.Array) -> tuple[pa.Array, RowFailures]:
    if values.nbytes <= MAX_VALUE_BYTES:
        return values, RowFailures.none()  # no value can be longer than all of them
    is_long = pc.fill_null(pc.greater(pc.binary_length(values), MAX_VALUE_BYTES), FALSE)
    shorter = pc.if_else(is_long, pa.scalar(None, pa.binary()), values)
    return shorter, RowFailures.of(is_long.to_numpy(zero_copy_only=False), _TOO_LONG)


def _column_reader(info: SchemaInfo) -> ColumnReader:
    if PrimitiveReader.knows(info.type):
        return PrimitiveReader(info)
    if info.type == SchemaType.KEY_VALUE:
        key, value = pair_of(info)
        if SchemaType.KEY_VALUE in (key.type, value.type):
            raise IncompatibleSchema("A pair within a pair can't be read.", hint=_AS_BYTES)
        return PairReader(info, _column_reader(key), _column_reader(value))
    make = _READERS.get(info.type)
    if make is not None:
        return make(info)
    kind = next((one.name for one in SchemaType if one == info.type), str(info.type))
    raise IncompatibleSchema(
        f"Values of schema type {kind} can't be read as columns.",
        hint=f"{_AS_BYTES} For PROTOBUF (its registered definition lacks the field numbers), give "
        "ProtobufSchema.of(MyMessage).",
    )


def _named_as_read(writer: SchemaInfo, reader: SchemaInfo) -> pa.DataType:
    if writer.type != reader.type:
        return pa.null()  # read as bytes; or PROTOBUF, whose definition lacks the fields' numbers
    match writer.type:
        case SchemaType.AVRO:
            return avro_as_read(parsed(writer), parsed(reader))
        case SchemaType.JSON:
            return avro_as_read(parsed(writer), parsed(reader), by_alias=False)
        case SchemaType.PROTOBUF_NATIVE:
            return protobuf_as_read(writer, reader)
        case SchemaType.KEY_VALUE:
            both = zip(("key", "value"), pair_of(writer), pair_of(reader), strict=True)
            return pa.struct([(name, _named_as_read(one, other)) for name, one, other in both])
    return pa.null()


def _pairs(values: pa.Array, keys: pa.Array | None, writer: SchemaInfo) -> pa.StructArray:
    if keys is None and writer.type == SchemaType.KEY_VALUE and not is_inline(writer):
        raise AssertionError("Reading pairs with separated keys needs the messages' keys.")
    keys = pa.nulls(len(values), pa.binary()) if keys is None else keys.cast(pa.binary())
    return pa.StructArray.from_arrays([keys, values], names=["key", "value"])
