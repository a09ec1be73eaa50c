"""Converts values of messages to JSON, each by the schema version that its message names."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import pyarrow as pa

from eos.catalog._cluster_topics import type_name
from eos.catalog._peek_reader import RawMessage
from eos.client import PulsarClient
from eos.errors import IncompatibleSchema
from eos.ids import TopicName
from eos.schemas.reading import (
    SchemaVersion,
    ValueReader,
    is_version,
    value_reader,
    why_unknown,
)
from eos.wire.commands import SchemaInfo, SchemaType
from eos.wire.spark_text import calendar_text

# Total size of a topic's decoded values: a few bytes may decode to many.
MAX_SHOWN_BYTES: Final = 16 * 1024 * 1024

_ITEM_BYTES: Final = 32  # Added for each value, list, record and item: the size of Python's object.


@dataclass(frozen=True)
class JsonValue:
    """A value that JSON can represent.

    Attributes:
        value: numbers, texts, lists and objects; None if ``hex`` has the value.
        hex: bytes that are not text.
        schema_type, schema_version: of the schema that decoded it.
        problem: why it could not be decoded; then it is shown as bytes.
    """

    value: Any
    hex: str | None = None
    schema_type: str = "bytes"
    schema_version: int | None = None
    problem: str | None = None


class ValueDecoder:
    """Decodes the values of one topic."""

    # Messages that name no version of the topic's schema are shown as bytes, as by Java's
    # AUTO_CONSUME: their schema is unknown.

    def __init__(self, client: PulsarClient, topic: TopicName) -> None:
        self._client = client
        self._topic = topic.base
        self._versions: dict[bytes, SchemaVersion | None] = {}
        self._readers: dict[SchemaInfo, ValueReader] = {}
        self._left = MAX_SHOWN_BYTES

    def decode(self, message: RawMessage) -> JsonValue:
        """Decode the value of ``message``; EosError if the registry can't be queried."""
        named = message.schema_version or b""
        version = self._version(named)
        if version is None:
            # Bytes are no problem where neither message nor topic has a schema.
            is_plain = message.value is None or not (named or self._has_schema)
            return _as_bytes(message.value, problem=None if is_plain else why_unknown(named))
        return replace(
            self._decoded(message, version),
            schema_type=type_name(version.info),
            schema_version=version.number,
        )

    def _decoded(self, message: RawMessage, version: SchemaVersion) -> JsonValue:
        if message.value is None and version.info.type != SchemaType.KEY_VALUE:
            return JsonValue(None)
        try:
            reader = self._reader(version)
            values, keys = (pa.array([one], pa.binary()) for one in (message.value, message.key))
            found = reader.decode(values, keys)
        except IncompatibleSchema as error:
            return _as_bytes(message.value, problem=error.message.splitlines()[0])
        if len(found.failures):
            return _as_bytes(message.value, problem=found.failures.reasons[0])
        columns = found.columns
        self._left -= (size := sum(_size(one) for one in columns.columns))
        # A value that is left out does not count: smaller ones are still shown.
        if self._left < 0:
            self._left += size
            return JsonValue(None, problem="The decoded value is too large to be shown.")
        scalars = {name: columns.column(n)[0] for n, name in enumerate(columns.schema.names)}
        if reader.is_record:
            return JsonValue({name: plain(one) for name, one in scalars.items()})
        (only,) = scalars.values()
        return _as_bytes(only.as_py()) if pa.types.is_binary(only.type) else JsonValue(plain(only))

    @cached_property
    def _has_schema(self) -> bool:
        return self._client.lookup.schema(self._topic) is not None

    def _version(self, named: bytes) -> SchemaVersion | None:
        if not is_version(named):
            return None
        if named not in self._versions:
            # By the message's own version, not the newest.
            found = self._client.lookup.schema(self._topic, named)
            self._versions[named] = (
                None if found is None else SchemaVersion(found[0], int.from_bytes(found[1], "big"))
            )
        return self._versions[named]

    def _reader(self, version: SchemaVersion) -> ValueReader:
        if version.info not in self._readers:
            self._readers[version.info] = value_reader(version)
        return self._readers[version.info]


def _size(array: pa.Array) -> int:
    """Return the approximate size of the result of ``plain``."""
    kind, types = array.type, pa.types
    inner: list[pa.Array] = []
    if types.is_struct(kind):
        inner = [array.field(n) for n in range(kind.num_fields)]
    elif types.is_map(kind):
        inner = [array.keys, array.items]
    elif types.is_list(kind) or types.is_large_list(kind):
        inner = [array.flatten()]
    own = 0 if inner else array.nbytes
    # Millions of small items take more memory as Python objects than as Arrow's bytes.
    return own + _ITEM_BYTES * len(array) + sum(_size(one) for one in inner)


def _as_bytes(data: bytes | None, problem: str | None = None) -> JsonValue:
    text = text_of(data)
    return JsonValue(text, data.hex() if data and text is None else None, problem=problem)


def text_of(data: bytes | None) -> str | None:
    """Return bytes as text if they are UTF-8."""
    # Bytes with zeros are most likely a number.
    if data is None or b"\0" in data:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def plain(scalar: pa.Scalar) -> Any:
    """Convert an Arrow value for JSON: dates, times and decimals to text, bytes to text or 0x...,
    NaN and infinity to text."""
    kind, types = scalar.type, pa.types
    if not scalar.is_valid:
        return None
    if types.is_struct(kind):
        return {field.name: plain(scalar[n]) for n, field in enumerate(kind)}
    if types.is_map(kind):
        return {str(plain(pair[0])): plain(pair[1]) for pair in scalar.values}
    if types.is_list(kind):
        return [plain(one) for one in scalar.values]
    if types.is_binary(kind) or types.is_fixed_size_binary(kind):
        data = scalar.as_py()
        text = text_of(data)
        return f"0x{data.hex()}" if text is None else text
    if types.is_date32(kind) or types.is_timestamp(kind):
        (text,) = calendar_text(pa.array([scalar.value], kind)).to_pylist()
        return f"{text}Z" if types.is_timestamp(kind) and kind.tz else text
    if types.is_temporal(kind) or types.is_decimal(kind):
        return scalar.cast(pa.string()).as_py()  # Python's types have a smaller range
    value = scalar.as_py()
    return value if not isinstance(value, float) or math.isfinite(value) else str(value)
