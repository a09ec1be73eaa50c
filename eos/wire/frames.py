"""Frames: what stands between the bytes of a connection and the commands.

Simple: ``[total u32][command size u32][BaseCommand]``. With payload, behind that:
``[0x0e01][crc32c u32][metadata size u32][MessageMetadata][payload]``. Big endian; the checksum
covers metadata size, metadata and payload. Towards a client ``[0x0e02][size u32]
[BrokerEntryMetadata]`` may stand before that. Magic and checksum may be left out: brokers store
such entries, and other clients read them. Source: Pulsar's binary protocol specification.
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

MAX_FRAME_BYTES: Final = 1024 * 1024
"""More than any answer takes that comes before the broker has told its own limit."""

ROOM_BYTES: Final = 64 * 1024
"""What a frame may have besides a message of the broker's limit; Pulsar's own padding is 10 KiB."""

_MAGIC_CRC32C: Final = 0x0E01
_MAGIC_BROKER_METADATA: Final = 0x0E02
_SIZES: Final = struct.Struct(">II")
_SIZE: Final = struct.Struct(">I")
_TAGGED: Final = struct.Struct(">HI")


@dataclass(frozen=True)
class UnknownCommand:
    """A well-formed command that this client does not speak; ``type_number`` says which."""

    type_number: int


@dataclass(frozen=True)
class Delivery:
    """An entry as the broker delivers it; ``open`` says what is in it.

    Not opened where frames are decoded: one that is damaged must not end a connection, which is
    in step, for all others who use it.
    """

    command: Deliver
    body: bytes

    def open(self) -> tuple[MessageMetadata, bytes]:
        """The metadata and the payload as they were sent.

        Raises:
            ProtocolError: the entry is malformed, or its checksum is wrong.
        """
        start, end = metadata_place(memoryview(self.body), 0, len(self.body))
        return MessageMetadata.decode(self.body[start:end]), self.body[end:]

    def claimed_messages(self) -> int:
        """How many messages one that is damaged says it holds; 1 when it can't be told."""
        try:
            start, end = metadata_place(memoryview(self.body), 0, len(self.body), is_checked=False)
            return max(1, MessageMetadata.decode(self.body[start:end]).num_messages_in_batch or 1)
        except ProtocolError:
            return 1


def metadata_place(
    data: memoryview, start: int, end: int, *, is_checked: bool = True
) -> tuple[int, int]:
    """Where the metadata lies of the entry that is all of ``data[start:end]``; behind that, up to
    ``end``, is the payload.

    Raises:
        ProtocolError: the entry is malformed, or its checksum is wrong.
    """
    at = start
    if end - at >= 6:
        magic, size = _TAGGED.unpack_from(data, at)
        if magic == _MAGIC_BROKER_METADATA:
            at += 6 + size
    if end - at >= 6:
        magic, checksum = _TAGGED.unpack_from(data, at)
        if magic == _MAGIC_CRC32C:
            at += 6
            if is_checked and crc32c(data[at:end]) != checksum:
                raise ProtocolError("An entry has a wrong checksum.")
    if end - at < 4:
        raise ProtocolError("An entry that is cut off.")
    (size,) = _SIZE.unpack_from(data, at)
    if size > end - at - 4:
        raise ProtocolError(f"Metadata of {size} bytes in an entry of {end - start}.")
    return at + 4, at + 4 + size


def unreadable_entry(at: MessageId, reason: ProtocolError) -> ProtocolError:
    """The error that names the entry at ``at``."""
    error = ProtocolError(f"The entry {at} can't be read: {reason.message}", hint=reason.hint)
    error.place = at.place
    return error


Command = WireMessage | UnknownCommand | Delivery


def encode_frame(command: WireMessage) -> bytes:
    """The simple frame of ``command``."""
    body = BaseCommand.around(command)
    return _SIZES.pack(len(body) + 4, len(body)) + body


def encode_send(send: Send, metadata: MessageMetadata, payload: memoryview | bytes) -> bytes:
    """The head of a SEND frame: all of it but ``payload``, which follows as it is.

    The payload is read once for the checksum and never copied: hand the socket both parts.
    """
    command = BaseCommand.around(send)
    meta = metadata.encode()
    sized_meta = _SIZE.pack(len(meta)) + meta
    checksum = crc32c(payload, crc32c(sized_meta))
    total = 4 + len(command) + 2 + 4 + len(sized_meta) + len(payload)
    return b"".join(
        (
            _SIZES.pack(total, len(command)),
            command,
            _TAGGED.pack(_MAGIC_CRC32C, checksum),
            sized_meta,
        )
    )


class FrameDecoder:
    """Bytes in, commands out; keeps what is not yet whole. One for each connection.

    Args:
        max_frame_bytes: a longer frame is an error, before any of it is kept.
    """

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._buffer = bytearray()
        self._max_frame_bytes = max_frame_bytes

    def admit_messages(self, max_message_bytes: int) -> None:
        """From now on take frames that hold a message of ``max_message_bytes`` as well."""
        self._max_frame_bytes = max(self._max_frame_bytes, max_message_bytes + ROOM_BYTES)

    def feed(self, data: bytes | bytearray | memoryview) -> Iterator[Command]:
        """Take more bytes and yield each command that they complete; to be drained each time.

        Raises:
            ProtocolError: a frame is too long, too short or holds no command. The connection is
                out of step then and must be closed.
        """
        self._buffer += data
        while len(self._buffer) >= 4:
            total = int.from_bytes(self._buffer[:4], "big")
            if not 4 < total <= self._max_frame_bytes:
                raise ProtocolError(f"A frame of {total} bytes.")
            if len(self._buffer) < 4 + total:
                return
            frame = bytes(self._buffer[4 : 4 + total])
            del self._buffer[: 4 + total]
            yield _decode_frame(frame)


def _decode_frame(frame: bytes) -> Command:
    """One command. The only one that carries a payload towards the client is MESSAGE."""
    base, behind = parse_envelope(frame, 0, len(frame))
    command = open_envelope(base)
    return Delivery(command, frame[behind:]) if isinstance(command, Deliver) else command


def parse_envelope(data: bytes | memoryview, start: int, end: int) -> tuple[Any, int]:
    """The parsed BaseCommand of the frame that is ``data[start:end]`` without its total size, with
    a type, and where it ends.

    Raises:
        ProtocolError: it is too long, or none.
    """
    (size,) = _SIZE.unpack_from(data, start)
    behind = start + 4 + size
    if not start + 4 < behind <= end:
        raise ProtocolError(f"A command of {size} bytes in a frame of {end - start}.")
    base = BaseCommand.parse(data[start + 4 : behind])
    if not base.HasField("type"):
        raise ProtocolError("A BaseCommand without a type.")
    return base, behind


def open_envelope(base: Any) -> WireMessage | UnknownCommand:
    """The command in a parsed BaseCommand.

    Raises:
        ProtocolError: there is none, or it lacks what is required.
    """
    kind = COMMANDS.get(base.type)
    if kind is None:
        return UnknownCommand(base.type)
    if not base.HasField(FIELD_NAMES[kind]):
        raise ProtocolError(f"A BaseCommand of type {base.type} without its command.")
    # Only this field: what else stands in the envelope is nobody's business and costs nothing.
    return kind.from_protobuf(getattr(base, FIELD_NAMES[kind]))
