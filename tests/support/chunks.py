"""Sends single chunks, as Java's producers send those of a message."""

from __future__ import annotations

from typing import Any

import pytest

from eos.client import EntryProducer
from eos.ids import MessageId
from eos.wire import commands
from eos.wire.batch import Compression, EncodedBatch


def send_chunk(
    producer: EntryProducer, number: int, of: int, uuid: str, payload: bytes, **more: Any
) -> MessageId:
    """Send chunk ``number`` of the message ``uuid``; ``more``: other metadata."""
    encode = commands.MessageMetadata

    def chunk(**fields: Any) -> commands.MessageMetadata:
        fields |= {"num_messages_in_batch": None, "uncompressed_size": len(payload), **more}
        return encode(**fields, uuid=uuid, num_chunks_from_msg=of, chunk_id=number)

    batch = EncodedBatch(memoryview(payload), 1, len(payload), Compression.NONE, 0, 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(commands, "MessageMetadata", chunk)
        return producer.send_batch(batch).result()
