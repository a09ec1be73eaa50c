"""Builds Arrow columns from message headers in a buffer, or from messages read one by one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from eos.wire.batch import DecodedMessage
from eos.wire.byte_rows import Bytes
from eos.wire.decoding._gather import from_base64, gather, gather_properties
from eos.wire.decoding._message_headers import (
    EVENT_TIME,
    KEY_IS_BASE64,
    NULL_VALUE,
    ORDERING_KEY,
    PARTITION_KEY,
    PROPERTY,
    SEQUENCE_ID,
    MessageHeaders,
    Spans,
)

TIME: Final = pa.timestamp("ms", tz="UTC")

MESSAGE_COLUMNS: Final = {
    "value": pa.binary(),
    "key": pa.binary(),
    "key_is_binary": pa.bool_(),
    "event_time": TIME,
    "properties": pa.map_(pa.string(), pa.string()),
    "ordering_key": pa.binary(),
    "sequence_id": pa.int64(),
}
"""The columns that differ by message; null for a message without the field."""


def columns_of_headers(
    buffer: Bytes, headers: MessageHeaders, names: Collection[str]
) -> dict[str, pa.Array]:
    """Return the columns ``names`` of messages that were read in bulk.

    Raises:
        Irregular: a key or a property can't be read in bulk.
    """
    return {name: _READ[name](buffer, headers) for name in names}


def _value(buffer: Bytes, headers: MessageHeaders) -> pa.Array:
    nulls = headers.numbers.get(NULL_VALUE)
    return gather(buffer, headers.value, None if nulls is None else nulls <= 0)


def _key(buffer: Bytes, headers: MessageHeaders) -> pa.Array:
    keys = _blob(PARTITION_KEY)(buffer, headers)
    flags = headers.numbers.get(KEY_IS_BASE64)
    if flags is None:
        return keys
    encoded = (flags > 0) & keys.is_valid().to_numpy(zero_copy_only=False)
    return from_base64(keys, encoded) if encoded.any() else keys


def _key_is_binary(_: Bytes, headers: MessageHeaders) -> pa.Array:
    keys = headers.blobs.get(PARTITION_KEY)
    if keys is None:
        return pa.nulls(len(headers), pa.bool_())
    flags = headers.numbers.get(KEY_IS_BASE64)
    is_binary = np.zeros(len(headers), np.bool_) if flags is None else flags > 0
    has_none = keys.size < 0
    return pa.array(is_binary, mask=has_none if has_none.any() else None)


def _properties(buffer: Bytes, headers: MessageHeaders) -> pa.Array:
    spans = headers.blobs.get(PROPERTY)
    return gather_properties(buffer, Spans.none(len(headers)) if spans is None else spans)


def _blob(tag: int) -> Callable[[Bytes, MessageHeaders], pa.Array]:
    def read(buffer: Bytes, headers: MessageHeaders) -> pa.Array:
        spans = headers.blobs.get(tag)
        return pa.nulls(len(headers), pa.binary()) if spans is None else gather(buffer, spans)

    return read


def _number(tag: int, kind: pa.DataType) -> Callable[[Bytes, MessageHeaders], pa.Array]:
    def read(_: Bytes, headers: MessageHeaders) -> pa.Array:
        numbers = headers.numbers.get(tag)
        if numbers is None:
            return pa.nulls(len(headers), kind)
        missing = numbers < 0
        column = pa.array(numbers, mask=missing if missing.any() else None)
        return column if kind == column.type else column.view(kind)

    return read


_READ: Final[dict[str, Callable[[Bytes, MessageHeaders], pa.Array]]] = {
    "value": _value,
    "key": _key,
    "key_is_binary": _key_is_binary,
    "event_time": _number(EVENT_TIME, TIME),
    "properties": _properties,
    "ordering_key": _blob(ORDERING_KEY),
    "sequence_id": _number(SEQUENCE_ID, pa.int64()),
}


def columns_of_messages(
    messages: Sequence[DecodedMessage], names: Collection[str]
) -> dict[str, pa.Array]:
    """Return the columns ``names`` of messages that were read one by one."""
    return {
        name: _array([_PICK[name](message) for message in messages], MESSAGE_COLUMNS[name])
        for name in names
    }


def _array(items: list[Any], kind: pa.DataType) -> pa.Array:
    if kind != pa.binary():
        return pa.array(items, kind)
    # ``pa.array`` would hold two more copies of a value of 100 MiB for a while.
    offsets = np.zeros(len(items) + 1, np.int32)
    np.cumsum([0 if item is None else len(item) for item in items], out=offsets[1:])
    is_valid = np.packbits([item is not None for item in items], bitorder="little")
    data = pa.py_buffer(b"".join(item for item in items if item))
    buffers = [pa.py_buffer(is_valid), pa.py_buffer(offsets), data]
    return pa.Array.from_buffers(kind, len(items), buffers)


def signed(number: int | None) -> int | None:
    """Convert an unsigned number on the wire to Arrow's int64."""
    return None if number is None else (number + 2**63) % 2**64 - 2**63


def _key_bytes(message: DecodedMessage) -> bytes | None:
    return message.key.encode() if isinstance(message.key, str) else message.key


_PICK: Final[dict[str, Callable[[DecodedMessage], Any]]] = {
    "value": lambda message: message.value,
    "key": _key_bytes,
    "key_is_binary": lambda message: message.key_is_binary,
    "event_time": lambda message: signed(message.event_time_ms),
    "properties": lambda message: message.properties,
    "ordering_key": lambda message: message.ordering_key,
    "sequence_id": lambda message: signed(message.sequence_id),
}
