"""Builds delivered entries by hand."""

from __future__ import annotations

import struct

from eos.wire import commands
from eos.wire.checksum import crc32c
from eos.wire.frames import encode_frame


def metadata(**fields: object) -> commands.MessageMetadata:
    """An entry's metadata: the required fields and ``fields``."""
    required = {"producer_name": "p", "sequence_id": 1, "publish_time": 2}
    return commands.MessageMetadata(**(required | fields))


def body(meta: commands.MessageMetadata, payload: bytes, broker_metadata: bytes = b"") -> bytes:
    """The part of a frame with an entry that follows the command."""
    encoded = meta.encode()
    covered = struct.pack(">I", len(encoded)) + encoded + payload
    prefix = b""
    if broker_metadata:
        prefix = struct.pack(">HI", 0x0E02, len(broker_metadata)) + broker_metadata
    return prefix + struct.pack(">HI", 0x0E01, crc32c(covered)) + covered


def frame(consumer_id: int, entry: int, content: bytes) -> bytes:
    """A MESSAGE frame with ``content`` after the command."""
    command = commands.Deliver(
        consumer_id=consumer_id, message_id=commands.MessageIdData(ledger=7, entry=entry)
    )
    simple = encode_frame(command)
    return struct.pack(">I", len(simple) - 4 + len(content)) + simple[4:] + content
