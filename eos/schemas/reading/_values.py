"""From the values of messages to columns, by the schemas of a topic."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import starmap
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eos.errors import ConfigurationError, IncompatibleSchema
from eos.schemas._avro import AvroSchema
from eos.schemas._base import Schema
from eos.schemas._describe import side_by_side
from eos.schemas._key_value import KeyValueSchema, is_inline, pair_info
from eos.schemas._primitives import PrimitiveSchema
from eos.schemas._protobuf import ProtobufSchema
from eos.schemas.reading._avro import AvroReader, parsed
from eos.schemas.reading._base import ColumnReader, check_kind
from eos.schemas.reading._json import JsonReader
from eos.schemas.reading._pairs import PairReader, pair_of
from eos.schemas.reading._primitives import PrimitiveReader
from eos.schemas.reading._protobuf import ProtobufReader
from eos.wire.columns import FALSE
from eos.wire.commands import SchemaInfo, SchemaType
from eos.wire.failures import Failures

MAX_VALUE_BYTES: Final = 64 << 20
"""Of one value that becomes columns, which take up to five times as much meanwhile."""
_TOO_LONG: Final = f"The value is longer than {MAX_VALUE_BYTES >> 20} MiB."
_BYTES: Final = SchemaInfo(type=SchemaType.NONE)
VERSION_BYTES: Final = 8  # brokers count versions, big endian
_READERS: Final[dict[int, Callable[[SchemaInfo], ColumnReader]]] = {
    SchemaType.AVRO: AvroReader,
    SchemaType.JSON: JsonReader,
    SchemaType.PROTOBUF_NATIVE: ProtobufReader,
}


@dataclass(frozen=True)
class SchemaVersion:
    """A schema of a topic; ``number``: its version in the registry, if that is known."""

    info: SchemaInfo
    number: int | None = None

    def __str__(self) -> str:
        return "a schema of your own" if self.number is None else f"version {self.number}"


@dataclass(frozen=True)
class DecodedValues:
    """Values as columns.

    Attributes:
        columns: a row for each value; all of its columns are null where the value was null, and
            where it is malformed.
        failures: the malformed rows, and why.
        refused: of ``decode_versions``: the reasons that hold for all messages of a version, and
            the error of each, which shows both schemas.
    """

    columns: pa.RecordBatch
    failures: Failures
    refused: Mapping[str, IncompatibleSchema] = field(default_factory=dict)


class ValueReader:
    """Reads the values of a topic by one schema, whatever version of it each was written by.

    Attributes:
        schema: of the columns: a record's fields; ``key`` and ``value`` of pairs; else ``value``.
        is_record: whether it is the first, or a pair.
        is_pair: whether it is a pair.
    """

    def __init__(
        self, reader: SchemaVersion, written: SchemaVersion, *, is_own: bool = False
    ) -> None:
        """``written``: what ``decode`` takes values for by default. ``is_own``: the user says what
        values are of which the registry says nothing that is understood."""
        self._reader = reader
        self._written = written
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
        """Read values that were written by one version of the schema.

        Args:
            values: binary; a null is a message without a value.
            keys: of the messages, binary or text; pairs with the encoding ``separated`` need them.
            writer: the version that the messages name; None: the topic's own.

        Raises:
            IncompatibleSchema: nothing that was written by ``writer`` can be read; shows both.
        """
        writer = self._understood(writer or self._written)
        data, long = _of_bearable_length(values.cast(pa.binary()))
        if self.is_pair:
            data = _pairs(data, keys, writer.info)
        try:
            check_kind(writer.info, self._reader.info)
            column, failures = self._column.read(data, writer.info)
        except IncompatibleSchema as error:
            titles = ("written:", "read:")
            both = side_by_side(writer.info, self._reader.info, titles)
            raise IncompatibleSchema(
                f"Messages of schema {writer} can't be read by {self._reader}: {error.message}"
                f"{both}\n",
                hint=error.hint or "Give a schema of your own that can read both versions.",
            ) from error
        failures = Failures.merged([long, failures])
        columns = column.flatten() if self._column.is_record else [column]
        if not columns:  # of a record without fields; a batch knows its rows by its columns
            batch = pa.RecordBatch.from_struct_array(column)
        else:
            batch = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        return DecodedValues(batch, failures)

    def decode_versions(
        self,
        values: pa.Array,
        keys: pa.Array | None,
        versions: pa.Array,
        find: Callable[[bytes], SchemaVersion | None],
    ) -> DecodedValues:
        """Read values that name different versions.

        Messages that name none, or one that the registry does not have, are read by a schema of
        one's own, as the Java client does; without one they are malformed: there are no words for
        their bytes, even where these happen to fit the topic's schema (Java's ``AUTO_CONSUME``
        gives bytes). So are those of a version that can't be read.

        Args:
            values, keys: as for ``decode``.
            versions: binary: the version that each message names; null for none.
            find: the schema of a version, None if the registry has none; asked once for each one in
                ``versions`` that may be one.
        """
        encoded = versions.dictionary_encode()
        numbers = encoded.indices.fill_null(-1).to_numpy()
        order: list[np.ndarray[tuple[int], np.dtype[np.int64]]] = []
        batches: list[pa.RecordBatch] = []
        failures: list[Failures] = []
        refused: dict[str, IncompatibleSchema] = {}
        for number in np.unique(numbers).tolist():
            rows = np.flatnonzero(numbers == number)
            named = b"" if number < 0 else encoded.dictionary[number].as_py()
            taken = pa.array(rows)
            some, some_keys = values.take(taken), None if keys is None else keys.take(taken)
            try:
                found = self.decode(some, some_keys, writer=self._writer(named, find))
            except IncompatibleSchema as error:
                reason = error.message.splitlines()[0]
                refused[reason] = error
                found = DecodedValues(*self._none_of(some, reason))
            order.append(rows)
            batches.append(found.columns)
            failures.append(found.failures.moved(rows))
        if len(batches) == 1:
            return DecodedValues(batches[0], failures[0], refused)
        if not batches or not len(self.schema):  # a table has no rows without columns
            none, _ = self._none_of(values, "")
            return DecodedValues(none, Failures.merged(failures), refused)
        table = pa.Table.from_batches(batches).combine_chunks()
        back = np.argsort(np.concatenate(order))
        (batch,) = table.take(pa.array(back)).combine_chunks().to_batches()
        return DecodedValues(batch, Failures.merged(failures), refused)

    def _writer(self, named: bytes, find: Callable[[bytes], SchemaVersion | None]) -> SchemaVersion:
        """What messages were written by that name the version ``named``; empty: none.

        Raises:
            IncompatibleSchema: that is not known.
        """
        # Asked for a version of fewer bytes, brokers close the connection.
        found = find(named) if len(named) == VERSION_BYTES else None
        if found is not None:
            return found
        if self._is_own or self._reader.info.type == SchemaType.NONE:
            return self._reader
        raise IncompatibleSchema(
            why_unknown(named),
            hint='If you know what they are, say so, and they are read by it: schema="avro" or '
            '"json" with schemaDefinition, or the name of a single type, such as "string".',
        )

    def _understood(self, writer: SchemaVersion) -> SchemaVersion:
        """``writer``, or one's own schema where the registry has no definition in its place."""
        if self._is_own and writer.info.type in (SchemaType.AVRO, SchemaType.JSON):
            try:
                parsed(writer.info)
            except IncompatibleSchema:
                return self._reader if self._reader.info.type == writer.info.type else writer
        return writer

    def _none_of(self, values: pa.Array, reason: str) -> tuple[pa.RecordBatch, Failures]:
        """All of ``values`` malformed."""
        failures = Failures.of(values.is_valid().to_numpy(zero_copy_only=False), reason)
        if not len(self.schema):  # a batch knows its rows by its columns
            return pa.RecordBatch.from_struct_array(pa.nulls(len(values), pa.struct([]))), failures
        nulls = [pa.nulls(len(values), one.type) for one in self.schema]
        return pa.RecordBatch.from_arrays(nulls, schema=self.schema), failures


def why_unknown(named: bytes | None) -> str:
    """Why a version that a message names says nothing; None, or empty: it names none."""
    if not named:
        return "The message names no version of the topic's schema."
    if len(named) != VERSION_BYTES:
        return f"The message names a schema version of {len(named)} bytes, which no registry has."
    number = int.from_bytes(named, "big", signed=True)
    return f"The message names schema version {number}, which is not in the registry."


def value_reader(
    registered: SchemaVersion | None, *, as_schema: Schema | None = None
) -> ValueReader:
    """What reads the values of a topic.

    Args:
        registered: the topic's schema; by default its columns are read. None: it has none.
        as_schema: a schema of one's own, which says what is read instead.

    Raises:
        IncompatibleSchema: no columns can be made of the schema that is read. Whether ``as_schema``
            can read what is written by ``registered``, ``check_readable`` asks.
        ConfigurationError: ``as_schema`` does not say what it is made of.
    """
    written = registered or SchemaVersion(_BYTES)
    if as_schema is None:
        return ValueReader(written, written)
    reader = SchemaVersion(declared(as_schema, written.info))
    if written.info.type == SchemaType.NONE:
        written = reader  # nobody says what it is: the user does
    return ValueReader(reader, written, is_own=True)


def check_readable(as_schema: Schema, registered: SchemaVersion) -> None:
    """Raise ``IncompatibleSchema`` when ``as_schema`` can't read what is written by ``registered``;
    shows both."""
    none = pa.array([], pa.binary())
    value_reader(registered, as_schema=as_schema).decode(none, none)


def are_same_values(one: SchemaInfo, other: SchemaInfo) -> bool:
    """Whether values of both become the same columns."""
    if (one.type, one.data) != (other.type, other.data):
        return False
    if one.type != SchemaType.KEY_VALUE:
        return True
    return all(starmap(are_same_values, zip(pair_of(one), pair_of(other), strict=True)))


def declared(schema: Schema, registered: SchemaInfo) -> SchemaInfo:
    """A schema of one's own as the registry would have it; what it leaves open is as
    ``registered``.

    Raises:
        ConfigurationError: it does not say what it is made of.
    """
    match schema:
        case AvroSchema(definition=str() as definition):
            return SchemaInfo(data=definition.encode(), type=schema.type)
        case PrimitiveSchema():
            return schema.info
        case ProtobufSchema(message=message) if message:
            return schema.info
        case KeyValueSchema(key=Schema() as key, value=Schema() as value):
            parts = [_BYTES, _BYTES]
            if registered.type == SchemaType.KEY_VALUE:
                parts = list(pair_of(registered))
            infos = [declared(one, part) for one, part in zip((key, value), parts, strict=True)]
            encoding: str = schema.encoding or "separated"
            if registered.type == SchemaType.KEY_VALUE:
                encoding = "inline" if is_inline(registered) else "separated"
            return pair_info(infos[0], infos[1], encoding)
    raise ConfigurationError(
        f"{type(schema).__name__}() does not say what values are made of.",
        hint="For reading, give it a definition, or leave it out: then the registry's is taken.",
    )


def _of_bearable_length(values: pa.Array) -> tuple[pa.Array, Failures]:
    """``values``, null where one is too long to be read as columns; and those rows."""
    if values.nbytes <= MAX_VALUE_BYTES:
        return values, Failures.none()
    is_long = pc.fill_null(pc.greater(pc.binary_length(values), MAX_VALUE_BYTES), FALSE)
    shorter = pc.if_else(is_long, pa.scalar(None, pa.binary()), values)
    return shorter, Failures.of(is_long.to_numpy(zero_copy_only=False), _TOO_LONG)


def _column_reader(info: SchemaInfo) -> ColumnReader:
    if PrimitiveReader.knows(info.type):
        return PrimitiveReader(info)
    if info.type == SchemaType.KEY_VALUE:
        key, value = pair_of(info)
        return PairReader(info, _column_reader(key), _column_reader(value))
    make = _READERS.get(info.type)
    if make is not None:
        return make(info)
    kind = next((one.name for one in SchemaType if one == info.type), str(info.type))
    raise IncompatibleSchema(
        f"Values of schema type {kind} can't be read as columns.",
        hint="Read them as bytes: PrimitiveSchema('bytes'). For PROTOBUF (its registered "
        "definition lacks the field numbers), give ProtobufSchema.of(MyMessage).",
    )


def _pairs(values: pa.Array, keys: pa.Array | None, writer: SchemaInfo) -> pa.StructArray:
    if keys is None and writer.type == SchemaType.KEY_VALUE and not is_inline(writer):
        raise AssertionError("Pairs with separated keys are read with the messages' keys.")
    keys = pa.nulls(len(values), pa.binary()) if keys is None else keys.cast(pa.binary())
    return pa.StructArray.from_arrays([keys, values], names=["key", "value"])
