"""Frames: what stands between the bytes of a connection and the commands.

Simple: ``[total u32][command size u32][BaseCommand]``. With payload, behind that:
``[0x0e01][crc32c u32][metadata size u32][MessageMetadata][payload]``. Big endian; the checksum
covers metadata size, metadata and payload. Source: Pulsar's binary protocol specification.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from eos.errors import ProtocolError
from eos.wire.checksum import crc32c
from eos.wire.commands import (
    COMMANDS,
    FIELD_NAMES,
    TYPE_NUMBERS,
    BaseCommand,
    MessageMetadata,
    Send,
)
from eos.wire.messages import Message

MAX_FRAME_BYTES: Final = 1024 * 1024
"""More than any answer takes. We receive commands only: a frame with messages never comes."""

_MAGIC_CRC32C: Final = 0x0E01
_SIZES: Final = struct.Struct(">II")


@dataclass(frozen=True)
class UnknownCommand:
    """A well-formed command that this client does not speak; ``type_number`` says which."""

    type_number: int


Command = Message | UnknownCommand


def encode_frame(command: Message) -> bytes:
    """The simple frame of ``command``."""
    body = _encode_command(command)
    return _SIZES.pack(len(body) + 4, len(body)) + body


def encode_send(send: Send, metadata: MessageMetadata, payload: memoryview | bytes) -> bytes:
    """The head of a SEND frame: all of it but ``payload``, which follows as it is.

    The payload is read once for the checksum and never copied: hand the socket both parts.
    """
    command = _encode_command(send)
    meta = metadata.encode()
    sized_meta = struct.pack(">I", len(meta)) + meta
    checksum = crc32c(payload, crc32c(sized_meta))
    total = 4 + len(command) + 2 + 4 + len(sized_meta) + len(payload)
    return b"".join(
        (
            _SIZES.pack(total, len(command)),
            command,
            struct.pack(">HI", _MAGIC_CRC32C, checksum),
            sized_meta,
        )
    )


def _encode_command(command: Message) -> bytes:
    kind = type(command)
    envelope: dict[str, Any] = {"type": TYPE_NUMBERS[kind], FIELD_NAMES[kind]: command}
    return BaseCommand(**envelope).encode()


class FrameDecoder:
    """Bytes in, commands out; keeps what is not yet whole. One for each connection.

    Args:
        max_frame_bytes: a longer frame is an error, before any of it is kept.
    """

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._buffer = bytearray()
        self._max_frame_bytes = max_frame_bytes

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
    """One command. No command that we speak carries a payload towards the client."""
    command_size = int.from_bytes(frame[:4], "big")
    if not 0 < command_size <= len(frame) - 4:
        raise ProtocolError(f"A command of {command_size} bytes in a frame of {len(frame)}.")
    base = BaseCommand.parse(frame[4 : 4 + command_size])
    if not base.HasField("type"):
        raise ProtocolError("A BaseCommand without a type.")
    kind = COMMANDS.get(base.type)
    if kind is None:
        return UnknownCommand(base.type)
    if not base.HasField(FIELD_NAMES[kind]):
        raise ProtocolError(f"A BaseCommand of type {base.type} without its command.")
    # Only this field: what else stands in the envelope is nobody's business and costs nothing.
    return kind.from_protobuf(getattr(base, FIELD_NAMES[kind]))
