"""Encodes and decodes frames, each of which contains one command.

A simple frame is ``[total u32][command size u32][BaseCommand]``. A frame with a payload continues
with ``[0x0e01][crc32c u32][metadata size u32][MessageMetadata][payload]``. Numbers are big endian.
Source, also of the quotes: Pulsar's binary protocol specification.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from eos.errors import ProtocolError
from eos.ids import MessageId
from eos.wire.checksum import crc32c
from eos.wire.commands import (
    COMMANDS,
    FIELD_NAMES,
    BaseCommand,
    Deliver,
    MessageMetadata,
    Send,
)
from eos.wire.messages import WireMessage

# The limit until CONNECTED has told the broker's: larger than any earlier answer.
MAX_FRAME_BYTES: Final = 1024 * 1024
# Of a frame, in addition to a message of the broker's limit; Pulsar allows 10 KiB.
FRAME_OVERHEAD_BYTES: Final = 64 * 1024

_MAGIC_CRC32C: Final = 0x0E01
_MAGIC_BROKER_METADATA: Final = 0x0E02
_SIZES: Final = struct.Struct(">II")
_SIZE: Final = struct.Struct(">I")
_TAGGED: Final = struct.Struct(">HI")


@dataclass(frozen=True)
class UnknownCommand:
    """A well-formed command of a type that this client does not know."""

    type_number: int


@dataclass(frozen=True)
class Delivery:
    """An entry as the broker delivers it."""

    command: Deliver
    # Parsed only by ``open``, not when frames are decoded: a corrupt entry must not end the
    # connection, which is in sync, for its other users.
    body: bytes

    def open(self) -> tuple[MessageMetadata, bytes]:
        """Return the metadata and the payload as they were sent.

        Raises:
            ProtocolError: the entry is malformed, or its checksum is wrong.
        """
        start, end = locate_metadata(memoryview(self.body), 0, len(self.body))
        return MessageMetadata.decode(self.body[start:end]), self.body[end:]

    def claimed_messages(self) -> int:
        """Return the message count that a corrupt entry claims; 1 if that can't be parsed."""
        try:
            start, end = locate_metadata(memoryview(self.body), 0, len(self.body), is_checked=False)
            return max(1, MessageMetadata.decode(self.body[start:end]).num_messages_in_batch or 1)
        except ProtocolError:
            return 1


def locate_metadata(
    data: memoryview, start: int, end: int, *, is_checked: bool = True
) -> tuple[int, int]:
    """Return start and end of the metadata in the entry ``data[start:end]``. The payload follows,
    up to ``end``.

    Raises:
        ProtocolError: the entry is malformed, or its checksum is wrong.
    """
    at = start
    if end - at >= 6:
        # Towards a client ``[0x0e02][size u32][BrokerEntryMetadata]`` may come before the first
        # magic. "magicNumberOfBrokerEntryMetadata, brokerEntryMetadataSize, and brokerEntryMetadata
        # should be used together."
        magic, size = _TAGGED.unpack_from(data, at)
        if magic == _MAGIC_BROKER_METADATA:
            at += 6 + size
    if end - at >= 6:
        # "magicNumber: a 2-byte byte array (0x0e01) identifying the current format"; "checksum: a
        # CRC32-C checksum of everything that comes after it". Both are optional: brokers store
        # entries without them, and other clients read them.
        magic, checksum = _TAGGED.unpack_from(data, at)
        if magic == _MAGIC_CRC32C:
            at += 6
            if is_checked and crc32c(data[at:end]) != checksum:
                raise ProtocolError("An entry has a wrong checksum.")
    if end - at < 4:
        raise ProtocolError("An entry is truncated.")
    (size,) = _SIZE.unpack_from(data, at)
    if size > end - at - 4:
        raise ProtocolError(f"An entry of {end - start} bytes claims {size} bytes of metadata.")
    # "Anything left in the frame is considered the payload."
    return at + 4, at + 4 + size


def unreadable_entry(at: MessageId, reason: ProtocolError) -> ProtocolError:
    """Return an error for ``reason`` that names the entry ``at``."""
    error = type(reason)(f"The entry {at} can't be read: {reason.message}", hint=reason.hint)
    error.place = at.place
    return error


Command = WireMessage | UnknownCommand | Delivery


def encode_frame(command: WireMessage) -> bytes:
    """Return the simple frame of ``command``."""
    body = BaseCommand.around(command)
    return _SIZES.pack(len(body) + 4, len(body)) + body


def encode_send(send: Send, metadata: MessageMetadata, payload: memoryview | bytes) -> bytes:
    """Return a SEND frame without its ``payload``, which must be sent after it."""
    # The payload is read once, for the checksum, and not copied.
    command = BaseCommand.around(send)
    meta = metadata.encode()
    sized_meta = _SIZE.pack(len(meta)) + meta
    checksum = crc32c(payload, crc32c(sized_meta))
    total = 4 + len(command) + 2 + 4 + len(sized_meta) + len(payload)
    magic = _TAGGED.pack(_MAGIC_CRC32C, checksum)
    return b"".join((_SIZES.pack(total, len(command)), command, magic, sized_meta))


class FrameDecoder:
    """Decodes a connection's bytes to commands, and buffers incomplete frames.

    Args:
        max_frame_bytes: a longer frame is an error, before any of it is buffered.
    """

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._buffer = bytearray()
        self._max_frame_bytes = max_frame_bytes

    def set_max_message_bytes(self, max_message_bytes: int) -> None:
        """Allow frames with a message of up to ``max_message_bytes``."""
        self._max_frame_bytes = max(self._max_frame_bytes, max_message_bytes + FRAME_OVERHEAD_BYTES)

    def feed(self, data: bytes | bytearray | memoryview) -> Iterator[Command]:
        """Add ``data`` and yield each command that it completes. Must be iterated to the end.

        Raises:
            ProtocolError: a frame is too long or too short, or has no command. The connection is
                then out of sync and must be closed.
        """
        self._buffer += data
        while len(self._buffer) >= 4:
            # "totalSize: the size of the frame, counting everything that comes after it".
            total = int.from_bytes(self._buffer[:4], "big")
            if not 4 < total <= self._max_frame_bytes:
                raise ProtocolError(f"A frame of {total} bytes is not allowed.")
            if len(self._buffer) < 4 + total:
                return
            frame = bytes(self._buffer[4 : 4 + total])
            del self._buffer[: 4 + total]
            yield _decode_frame(frame)


def _decode_frame(frame: bytes) -> Command:
    base, command_end = parse_envelope(frame, 0, len(frame))
    command = open_envelope(base)
    # Towards a client only MESSAGE has a payload.
    return Delivery(command, frame[command_end:]) if isinstance(command, Deliver) else command


def parse_envelope(data: bytes | memoryview, start: int, end: int) -> tuple[Any, int]:
    """Return the parsed BaseCommand of the frame ``data[start:end]`` (without its total size), and
    the end of the command.

    Raises:
        ProtocolError: the command exceeds the frame, is malformed, or has no type.
    """
    # "commandSize: the size of the protobuf-serialized command".
    (size,) = _SIZE.unpack_from(data, start)
    command_end = start + 4 + size
    if not start + 4 < command_end <= end:
        raise ProtocolError(f"A frame of {end - start} bytes claims a command of {size}.")
    base = BaseCommand.parse(data[start + 4 : command_end])
    if not base.HasField("type"):
        raise ProtocolError("A BaseCommand has no type.")
    return base, command_end


def open_envelope(base: Any) -> WireMessage | UnknownCommand:
    """Return the command in a parsed BaseCommand.

    Raises:
        ProtocolError: the command, or one of its required fields, is missing.
    """
    kind = COMMANDS.get(base.type)
    if kind is None:
        return UnknownCommand(base.type)
    if not base.HasField(FIELD_NAMES[kind]):
        raise ProtocolError(f"A BaseCommand of type {base.type} has no command.")
    # "BaseCommand messages can specify only one subcommand": others are ignored, and cost nothing.
    return kind.from_protobuf(getattr(base, FIELD_NAMES[kind]))
