"""Builds Arrow columns from message headers in a buffer, or from messages read one by one."""

from __future__ import annotations

import binascii
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from eos.wire.batch import DecodedMessage
from eos.wire.binary_columns import BinaryColumn, Int64s, Mask
from eos.wire.byte_rows import Bytes
from eos.wire.decoding._message_headers import (
    EVENT_TIME,
    KEY_IS_BASE64,
    NULL_VALUE,
    ORDERING_KEY,
    PARTITION_KEY,
    PROPERTY,
    SEQUENCE_ID,
    Irregular,
    MessageHeaders,
    Spans,
)
from eos.wire.decoding._varints import Words, decode_varints, words_of
from eos.wire.from_python import bytes_column
from eos.wire.messages import readable

TIME: Final = pa.timestamp("ms", tz="UTC")

# The columns that differ by message; null for a message without the field.
MESSAGE_COLUMNS: Final = {
    "value": pa.binary(),
    "key": pa.binary(),
    "key_is_binary": pa.bool_(),
    "event_time": TIME,
    "properties": pa.map_(pa.string(), pa.string()),
    "ordering_key": pa.binary(),
    "sequence_id": pa.int64(),
}

_PROPERTY_KEY = 1 << 3 | 2
_PROPERTY_VALUE = 2 << 3 | 2


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


def columns_of_metadata(
    buffer: Bytes, values: Spans, metadata: Sequence[Any], names: Collection[str]
) -> dict[str, pa.Array]:
    """Return the columns ``names`` of messages outside of batches, whose fields are in the parsed
    metadata of their entries.

    Raises:
        Irregular: a required field is missing, or a key is not base64.
    """
    for one in metadata:
        # As ``MessageMetadata.from_protobuf``, which would cost more than all other work.
        if not all(map(one.HasField, _REQUIRED)):
            raise Irregular
    found = {}
    if "value" in names:
        has_value = np.array([not one.null_value for one in metadata], np.bool_)
        found["value"] = gather(buffer, values, None if has_value.all() else has_value)
    for name in set(names) - found.keys():
        found[name] = _array([_OF_METADATA[name](one) for one in metadata], MESSAGE_COLUMNS[name])
    return found


def _key_of(metadata: Any) -> bytes | None:
    if not metadata.HasField("partition_key"):
        return None
    text: bytes = metadata.partition_key
    if not metadata.partition_key_b64_encoded:
        return text
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except binascii.Error:
        raise Irregular from None


def _properties_of(metadata: Any) -> list[tuple[str, str]]:
    return [(readable(pair.key), readable(pair.value)) for pair in metadata.properties]


_REQUIRED: Final = ("producer_name", "sequence_id", "publish_time")
_OF_METADATA: Final[dict[str, Callable[[Any], Any]]] = {
    "key": _key_of,
    "key_is_binary": lambda one: (
        one.partition_key_b64_encoded if one.HasField("partition_key") else None
    ),
    "event_time": lambda one: signed(one.event_time) if one.HasField("event_time") else None,
    "properties": _properties_of,
    "ordering_key": lambda one: one.ordering_key if one.HasField("ordering_key") else None,
    "sequence_id": lambda one: signed(one.sequence_id),
}


def _array(items: list[Any], kind: pa.DataType) -> pa.Array:
    # ``pa.array`` would hold two more copies of a value of 100 MiB for a while.
    return bytes_column(items, kind) if kind == pa.binary() else pa.array(items, kind)


def signed(number: int | None) -> int | None:
    """Return a number of the wire as an int64, with the same bits."""
    # Numbers are unsigned on the wire; Arrow would reject those above 2^63.
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


def gather(buffer: Bytes, spans: Spans, valid: Mask | None = None) -> pa.BinaryArray:
    """Return the bytes of ``spans``; null where a size is -1 or ``valid`` is false."""
    count = len(spans)
    if valid is None and count and spans.size[0] > 0 and (spans.size == spans.size[0]).all():
        return _gather_equal(buffer, spans.at, int(spans.size[0]))
    has = spans.size >= 0 if valid is None else (spans.size >= 0) & valid
    # Arrow's offsets of a column span, gap, span, gap ..., of which every other row is taken.
    offsets = np.full(2 * count + 1, len(buffer), np.int32)
    offsets[0:-1:2] = spans.at
    offsets[1::2] = spans.at + np.maximum(spans.size, 0)
    ranges = pa.Array.from_buffers(
        pa.binary(), 2 * count, [None, pa.py_buffer(offsets), pa.py_buffer(buffer)]
    )
    every_other = np.arange(0, 2 * count, 2, dtype=np.int32)
    return ranges.take(pa.array(every_other, mask=None if has.all() else ~has))


def _gather_equal(buffer: Bytes, at: Int64s, size: int) -> pa.BinaryArray:
    at_each_byte = np.ndarray((len(buffer) - size + 1,), f"V{size}", buffer, strides=(1,))
    offsets = np.arange(0, (len(at) + 1) * size, size, dtype=np.int32)
    data = at_each_byte[at].view(np.uint8)
    return pa.Array.from_buffers(
        pa.binary(), len(at), [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )


def from_base64(texts: pa.BinaryArray, encoded: Mask) -> pa.BinaryArray:
    """Decode the base64 of the rows of ``texts`` for which ``encoded`` is true; with padding, as
    clients write it.

    Raises:
        Irregular: a row is not base64.
    """
    # All rows are decoded in one call: each has whole groups of four characters, so its padding can
    # be replaced by letters, whose bytes are omitted afterwards.
    rows = np.flatnonzero(encoded)
    column = BinaryColumn.of(texts.take(pa.array(rows)))
    if (column.lengths % 4).any():
        raise Irregular
    letters = np.array(np.frombuffer(column.data, np.uint8))
    padding = _replace_padding(letters, column)
    try:
        data = binascii.a2b_base64(letters.tobytes(), strict_mode=True)
    except binascii.Error:
        raise Irregular from None
    spans = Spans(column.offsets[:-1] // 4 * 3, column.lengths // 4 * 3 - padding)
    decoded = gather(np.frombuffer(data, np.uint8), spans)
    order = np.arange(len(texts))
    order[rows] = len(texts) + np.arange(len(rows))
    return pa.concat_arrays([texts, decoded]).take(pa.array(order))


def _replace_padding(letters: Bytes, column: BinaryColumn) -> Int64s:
    """Replace each row's padding by letters, and return its length."""
    padding = np.zeros(len(column), np.int64)
    some = np.flatnonzero(column.lengths)
    last = column.offsets[1:][some] - 1
    for _ in range(2):
        is_padding = letters[last] == ord("=")
        some, last = some[is_padding], last[is_padding]
        letters[last] = ord("A")
        padding[some] += 1
        last = last - 1
    return padding


def gather_properties(buffer: Bytes, spans: Spans) -> pa.MapArray:
    """Return each message's properties, in the order on the wire, possibly with duplicate keys.

    Raises:
        Irregular: a property is malformed, not UTF-8, or has its value before its key.
    """
    # The first property of all messages, then the second one of those that have one, and so on.
    words = words_of(buffer)
    at, end = spans.at.copy(), spans.at + np.maximum(spans.size, 0)
    rows = np.flatnonzero(at < end)
    found = [(rows[:0], Spans.none(0), Spans.none(0))]
    while len(rows):
        key, value = _read_property(buffer, words, at[rows])
        found.append((rows, key, value))
        at[rows] = value.at + value.size
        rows = rows[at[rows] < end[rows]]
    owners = np.concatenate([rows for rows, _, _ in found])
    order = np.argsort(owners, kind="stable")
    keys = Spans.joined([key for _, key, _ in found]).take(order)
    values = Spans.joined([value for _, _, value in found]).take(order)
    offsets = np.zeros(len(spans) + 1, np.int32)
    np.cumsum(np.bincount(owners, minlength=len(spans)), out=offsets[1:])
    try:
        texts = [gather(buffer, part).cast(pa.string()) for part in (keys, values)]
    except pa.ArrowInvalid:
        raise Irregular from None
    return pa.MapArray.from_arrays(pa.array(offsets), *texts)


def _read_property(buffer: Bytes, words: Words, at: Int64s) -> tuple[Spans, Spans]:
    """Return the spans of keys and values of the properties at ``at``."""
    size, width = decode_varints(words[at + 1])
    key_at = at + 1 + width
    end = key_at + size
    key = _text_field(buffer, words, key_at, end, _PROPERTY_KEY)
    value = _text_field(buffer, words, key.at + key.size, end, _PROPERTY_VALUE)
    if (value.at + value.size != end).any():
        raise Irregular
    return key, value


def _text_field(buffer: Bytes, words: Words, at: Int64s, end: Int64s, tag: int) -> Spans:
    if (at >= end).any() or (buffer[at] != tag).any():
        raise Irregular
    size, width = decode_varints(words[at + 1])
    if not width.all() or (at + 1 + width + size > end).any():
        raise Irregular
    return Spans(at + 1 + width, size)
