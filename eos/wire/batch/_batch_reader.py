"""Reads a batch payload one message at a time, and validates everything: any producer wrote it.

Quotes are from Pulsar's binary protocol specification, and from PulsarApi.proto.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from eos.errors import ProtocolError

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MAX_FIELD_NUMBER: Final = 2**29 - 1
_SIZE_FIELD: Final = 3
_MAX_VARINT_BYTES: Final = 10

MIN_MESSAGE_BYTES: Final = 4  # the size of the metadata

# The broker's default for a whole message. Properties become objects of thirty times their size,
# and may take only a few KB in a compressed batch.
_MAX_METADATA_BYTES: Final = 5 * 1024 * 1024

# SingleMessageMetadata; other fields are skipped, as protobuf requires.
_WIRE_TYPES: Final = {
    1: _BYTES,  # properties
    2: _BYTES,  # partition_key
    3: _VARINT,  # payload_size
    4: _VARINT,  # compacted_out
    5: _VARINT,  # event_time
    6: _VARINT,  # partition_key_b64_encoded
    7: _BYTES,  # ordering_key
    8: _VARINT,  # sequence_id
    9: _VARINT,  # null_value
}


@dataclass(frozen=True)
class DecodedMessage:
    """One message of a batch.

    ``key`` is bytes if the writer sent it in base64, or if it is text that is not UTF-8 (then
    ``has_odd_text`` is set). ``properties`` are in the order on the wire, possibly with duplicate
    keys; what is not UTF-8 in them is replaced. A compaction leaves only the position of a removed
    message.
    """

    value: bytes | None
    key: str | bytes | None = None
    event_time_ms: int | None = None
    properties: tuple[tuple[str, str], ...] = ()
    ordering_key: bytes | None = None
    sequence_id: int | None = None
    is_compacted_out: bool = False
    has_odd_text: bool = field(default=False, compare=False)

    @property
    def key_is_binary(self) -> bool | None:
        """Whether the key was sent as bytes; None without a key."""
        if self.key is None:
            return None
        return isinstance(self.key, bytes) and not self.has_odd_text


def decode_batch(payload: bytes | memoryview, num_messages: int) -> list[DecodedMessage]:
    """Return the ``num_messages`` messages of an uncompressed batch payload.

    Raises:
        ProtocolError: the payload is malformed or truncated, or has extra bytes.
    """
    return list(iter_batch(payload, num_messages))


def iter_batch(payload: bytes | memoryview, num_messages: int) -> Iterator[DecodedMessage]:
    """Yield the ``num_messages`` messages of an uncompressed batch payload.

    Raises:
        ProtocolError: as ``decode_batch``, after yielding the messages before the error.
    """
    check_count(num_messages, len(payload))
    position = 0
    for _ in range(num_messages):
        message, position = _decode_message(payload, position)
        yield message
    check_end(position, len(payload))


def check_count(num_messages: int, payload_bytes: int) -> None:
    """Check that an uncompressed payload is long enough for so many messages.

    Raises:
        ProtocolError: it is too short.
    """
    if num_messages * MIN_MESSAGE_BYTES > payload_bytes:
        raise ProtocolError(
            f"batch: truncated, {payload_bytes} bytes can't contain {num_messages} messages."
        )


def check_end(position: int, payload_bytes: int) -> None:
    """Check that the last message ends at the end of the payload.

    Raises:
        ProtocolError: it does not.
    """
    if position != payload_bytes:
        raise ProtocolError(f"batch: {payload_bytes - position} bytes after the last message.")


def decode_first(payload: bytes) -> DecodedMessage:
    """Return the first message of an uncompressed batch payload, without reading the rest.

    Raises:
        ProtocolError: the message is malformed or truncated.
    """
    return _decode_message(payload, 0)[0]


def message_end(payload: bytes | memoryview, position: int) -> int:
    """Return the end of the message at ``position``.

    Raises:
        ProtocolError: the message is malformed or truncated.
    """
    metadata, position = _take_metadata(payload, position)
    sizes = [content for number, content in _fields(metadata, _WIRE_TYPES) if number == _SIZE_FIELD]
    size = _checked_size(sizes[-1] if sizes else None)
    if size > len(payload) - position:
        raise _truncated(size, len(payload) - position)
    return position + size


def _take_metadata(data: bytes | memoryview, position: int) -> tuple[bytes, int]:
    """Return the metadata of the message at ``position``, and the start of its value."""
    # "metadataSizeN, metadataN, payloadN", the size as 4 bytes, big endian.
    size = int.from_bytes(_take(data, position, 4), "big")
    metadata = _take(data, position + 4, size)
    if size > _MAX_METADATA_BYTES:
        raise ProtocolError(f"batch: a message has {size} bytes of metadata.")
    return metadata, position + 4 + size


def _checked_size(size: int | bytes | None) -> int:
    # "required int32 payload_size = 3;"
    if not isinstance(size, int) or size > 2**31 - 1:  # an int32; negative ones are huge varints
        raise ProtocolError("batch: a message's payload_size is missing or negative.")
    return size


def _decode_message(data: bytes | memoryview, position: int) -> tuple[DecodedMessage, int]:
    metadata, position = _take_metadata(data, position)
    properties: list[tuple[str, str]] = []
    blobs: dict[int, bytes] = {}
    numbers: dict[int, int] = {}
    for number, content in _fields(metadata, _WIRE_TYPES):
        if number == 1 and isinstance(content, bytes):
            properties.append(_decode_property(content))
        elif isinstance(content, bytes):
            blobs[number] = content
        else:
            numbers[number] = content
    size = _checked_size(numbers.get(_SIZE_FIELD))
    value = _take(data, position, size)
    is_null, is_base64 = bool(numbers.get(9, 0)), bool(numbers.get(6, 0))
    text = blobs.get(2)
    key = None if text is None else decode_key(text, is_base64=is_base64)
    message = DecodedMessage(
        value=None if is_null else value,
        key=key,
        event_time_ms=numbers.get(5),
        properties=tuple(properties),
        ordering_key=blobs.get(7),
        sequence_id=numbers.get(8),
        is_compacted_out=bool(numbers.get(4, 0)),
        has_odd_text=isinstance(key, bytes) and not is_base64,
    )
    return message, position + size


def decode_key(text: bytes, *, is_base64: bool) -> str | bytes:
    """Return a key from its form on the wire: bytes if it was sent in base64, or is not UTF-8.

    Raises:
        ProtocolError: the key is not base64.
    """
    if not is_base64:
        try:
            return text.decode()
        except UnicodeDecodeError:  # some clients send any bytes as text
            return text
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ProtocolError("batch: a binary key is not base64.") from None


def _decode_property(data: bytes) -> tuple[str, str]:
    parts = {
        # As Java's client; many clients send any bytes.
        number: content.decode(errors="replace")
        for number, content in _fields(data, {1: _BYTES, 2: _BYTES})
        if isinstance(content, bytes)
    }
    if parts.keys() != {1, 2}:
        raise ProtocolError("batch: a property has no key or no value.")
    return parts[1], parts[2]


def _fields(data: bytes, wire_types: dict[int, int]) -> Iterator[tuple[int, int | bytes]]:
    """Yield the known fields of a protobuf message; of others only the length is checked."""
    position = 0
    while position < len(data):
        # A tag is (field number << 3) | wire type. A field that occurs again replaces the first
        # one.
        tag, position = _decode_varint(data, position)
        number, wire_type = tag >> 3, tag & 7
        if not 1 <= number <= _MAX_FIELD_NUMBER:
            raise ProtocolError(f"batch: field number {number}.")
        if wire_types.get(number, wire_type) != wire_type:
            raise ProtocolError(f"batch: field {number} has wire type {wire_type}.")
        content: int | bytes
        if wire_type == _VARINT:
            content, position = _decode_varint(data, position)
        elif wire_type == _BYTES:
            size, position = _decode_varint(data, position)
            content = _take(data, position, size)
            position += size
        elif wire_type in (_FIXED64, _FIXED32):
            content = _take(data, position, 8 if wire_type == _FIXED64 else 4)
            position += len(content)
        else:
            raise ProtocolError(f"batch: wire type {wire_type}.")
        if number in wire_types:
            yield number, content


def _decode_varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    for byte in data[position : position + _MAX_VARINT_BYTES]:
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            if value >= 2**64:
                break
            return value, position
    if shift < 7 * _MAX_VARINT_BYTES:
        raise _truncated(1, 0)
    raise ProtocolError("batch: a varint has more than 64 bits.")


def _take(data: bytes | memoryview, position: int, size: int) -> bytes:
    part = bytes(data[position : position + size])
    if len(part) != size:
        raise _truncated(size, len(part))
    return part


def _truncated(wanted: int, left: int) -> ProtocolError:
    return ProtocolError(f"batch: truncated, {wanted} bytes expected, {left} left.")
