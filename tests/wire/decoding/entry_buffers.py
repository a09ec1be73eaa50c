"""Entries in one buffer, to be read in bulk and message by message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from eos.ids import MessageId
from eos.wire.batch import (
    Compression,
    DecodedMessage,
    Message,
    decode_batch,
    encode_batches,
    rows_from_messages,
)
from eos.wire.commands import MessageMetadata
from eos.wire.decoding import COLUMNS, PADDING_BYTES, DeliveredEntry, decode_entries
from tests.wire import entries as made

ALL = tuple(COLUMNS)
TRAPS = (b"\0\0\0\2\x18\5hello", b"\0\0\0\2\x18\0", b"\0\0\0\0\0\0\0\0\x18", b"\0" * 40)

texts = st.text(max_size=200)
values = st.one_of(st.none(), st.binary(max_size=300), st.sampled_from(TRAPS))
times = st.one_of(st.none(), st.integers(0, 2**63 - 1), st.integers(0, 300))
properties = st.one_of(st.none(), st.dictionaries(texts, texts, max_size=3))


@st.composite
def batches(draw: st.DrawFn) -> list[Message]:
    """Messages of one batch; each field is used by all, by some, or by none."""
    keys = draw(st.sampled_from((st.none(), texts, st.binary(max_size=20))))
    ordering = draw(st.sampled_from((st.none(), st.binary(max_size=20))))
    props = draw(st.sampled_from((st.none(), properties)))
    when = draw(st.sampled_from((st.none(), times)))
    message = st.builds(
        Message,
        value=values,
        key=st.one_of(st.none(), keys),
        event_time_ms=when,
        properties=props,
        ordering_key=ordering,
    )
    # Only a message with a key can be a tombstone.
    message = message.map(
        lambda one: one if one.key is not None else one._replace(value=one.value or b"")
    )
    return draw(st.lists(message, min_size=1, max_size=30))


def with_numbers(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Times as milliseconds: Python's datetime can't hold all that Arrow's timestamp can."""
    columns = [
        column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


class EntryBuffer:
    """Entries in one buffer, with other bytes between them."""

    def __init__(self) -> None:
        self.data = bytearray(b"\0\0\0")
        self.entries: list[DeliveredEntry] = []

    def add(self, payload: bytes, **fields: Any) -> None:
        metadata = MessageMetadata.parse(made.metadata(**fields).encode())
        at = len(self.data)
        self.data += payload + b"\0\0\0\2\x18\0between"
        self.entries.append(
            DeliveredEntry(MessageId(7, len(self.entries)), metadata, at, at + len(payload))
        )

    def add_batch(self, messages: Sequence[Message], compression: Compression) -> None:
        for batch in encode_batches(rows_from_messages(messages), compression=compression):
            self.add(
                bytes(batch.payload),
                num_messages_in_batch=batch.num_messages,
                compression=int(batch.compression) or None,
                uncompressed_size=batch.uncompressed_bytes,
            )

    def decode(self, columns: Sequence[str] = ALL) -> list[dict[str, Any]]:
        buffer = np.frombuffer(bytes(self.data) + bytes(PADDING_BYTES), np.uint8)
        read = [decoded.batch for decoded in decode_entries(buffer, self.entries, columns)]
        for batch in read:
            batch.validate(full=True)
        return [line for batch in read for line in with_numbers(batch).to_pylist()]


def row(message: DecodedMessage) -> dict[str, Any]:
    key = message.key.encode() if isinstance(message.key, str) else message.key
    return {
        "value": message.value,
        "key": key,
        "event_time": message.event_time_ms,
        "properties": list(message.properties),
        "ordering_key": message.ordering_key,
        "sequence_id": message.sequence_id,
        "key_is_binary": message.key_is_binary,
    }


def own(read: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows, with the columns of ``row`` only."""
    names = row(DecodedMessage(b""))
    return [{name: line[name] for name in names} for line in read]


def plain(entries: EntryBuffer) -> list[dict[str, Any]]:
    """The rows of ``entries``, read message by message."""
    return [row(message) for message in decoded(entries)]


def decoded(entries: EntryBuffer) -> list[DecodedMessage]:
    return [
        message
        for entry in entries.entries
        for message in decode_batch(
            bytes(entries.data[entry.start : entry.end]), entry.metadata.num_messages_in_batch
        )
    ]
