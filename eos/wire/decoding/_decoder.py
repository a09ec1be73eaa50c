"""Entries as the broker delivered them -> Arrow record batches, one row for each message."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from eos.errors import ConfigurationError, ProtocolError
from eos.ids import MessageId
from eos.wire.batch import DecodedMessage, Entry, decompress, iter_batch
from eos.wire.byte_rows import Bytes
from eos.wire.columns import Int64s
from eos.wire.commands import MessageMetadata
from eos.wire.decoding._columns import (
    MESSAGE_COLUMNS,
    TIME,
    columns_of_heads,
    columns_of_messages,
    signed,
)
from eos.wire.decoding._message_boundaries import Payloads, find_messages
from eos.wire.decoding._message_headers import COMPACTED_OUT, PADDING_BYTES, Irregular
from eos.wire.decoding._pieces import Piece, cut_batch
from eos.wire.frames import unreadable_entry

ENTRY_COLUMNS: Final = {
    "ledger": pa.int64(),
    "entry": pa.int64(),
    "publish_time": TIME,
    "producer_name": pa.string(),
    "schema_version": pa.binary(),
}
"""What all messages of an entry have in common."""

_AT_ONCE_BYTES: Final = 2 << 20
"""Of a buffer. What is made of more is out of the processor's caches by the time it is needed, and
of a size that the allocator gives back to the system each time (measured: a third more time)."""

_MUCH_BYTES: Final = 8 << 20
_MANY_MESSAGES: Final = 200_000
"""Of an entry that is read in pieces: a message takes some 400 bytes while its head is read."""

_KEPT_BYTES: Final = 32 << 20
"""Of pieces that are read and can't be given yet; others are read again when it is their turn."""

COLUMNS: Final = {**MESSAGE_COLUMNS, **ENTRY_COLUMNS, "batch_index": pa.int32()}
"""All columns that can be had. ``batch_index`` is -1 for what was sent outside of a batch."""


class DeliveredEntry(NamedTuple):
    """One entry in a buffer: its id, its parsed ``MessageMetadata``, and where its payload lies."""

    id: MessageId
    metadata: Any
    start: int
    end: int


class DecodedEntries(NamedTuple):
    """The messages of one entry or more, and the id of the last of these entries.

    ``is_whole``: nothing of that one comes behind it.
    """

    last_id: MessageId
    batch: pa.RecordBatch
    is_whole: bool = True


_Way = Callable[[Bytes, Sequence[DeliveredEntry], Sequence[str]], pa.RecordBatch]


def checked_columns(names: Sequence[str]) -> tuple[str, ...]:
    """``names``, when all of them are columns.

    Raises:
        ConfigurationError: one is not, or stands twice, or there is none.
    """
    unknown = [name for name in names if name not in COLUMNS]
    if unknown or not names or len(set(names)) < len(names):
        what = f"there is no column {unknown[0]!r}" if unknown else f"columns={list(names)!r}"
        raise ConfigurationError(f"{what}: choose some of {', '.join(COLUMNS)}, each once.")
    return tuple(names)


def decode_entries(
    buffer: Bytes, entries: Sequence[DeliveredEntry], columns: Sequence[str]
) -> Iterator[DecodedEntries]:
    """The messages of ``entries``, in order, in record batches of some MiB at most, uncompressed;
    or of one message. A batch is made when it is asked for: what is made of few bytes may be much.

    What a compaction has taken out of a batch is left out.

    Args:
        buffer: where the payloads lie, in order, with 8 bytes behind the last one.
        columns: names of ``COLUMNS``.

    Raises:
        ProtocolError: an entry is malformed, encrypted, or one chunk of a message; batches before
            it have been yielded, and nothing of it.
    """
    for read, group in itertools.groupby(entries, _way):
        for run in _runs(list(group)):
            yield from _decode_run(read, buffer, run, columns)


def _runs(alike: Sequence[DeliveredEntry]) -> Iterator[Sequence[DeliveredEntry]]:
    """By what is made of them."""
    first = size = 0
    for behind, entry in enumerate(alike):
        size += _uncompressed_bytes(entry)
        if size > _AT_ONCE_BYTES and behind > first:
            yield alike[first:behind]
            first, size = behind, _uncompressed_bytes(entry)
    yield alike[first:]


def _uncompressed_bytes(entry: DeliveredEntry) -> int:
    metadata = entry.metadata
    size: int = metadata.uncompressed_size if metadata.compression else entry.end - entry.start
    return size


def _decode_run(
    read: _Way, buffer: Bytes, run: Sequence[DeliveredEntry], columns: Sequence[str]
) -> Iterator[DecodedEntries]:
    """All in one go; where that can't be, one half after the other, down to what is odd."""
    try:
        yield DecodedEntries(run[-1].id, read(buffer, run, columns))
    except (Irregular, ProtocolError):
        if len(run) == 1:
            yield from _decode_odd(buffer, run[0], columns)
            return
        half = len(run) // 2
        yield from _decode_run(read, buffer, run[:half], columns)
        yield from _decode_run(read, buffer, run[half:], columns)


def _way(entry: DeliveredEntry) -> _Way:
    """How the messages of ``entry``, and of others like it, are read in one go."""
    metadata = entry.metadata
    if metadata.encryption_keys or metadata.num_chunks_from_msg > 1:
        return _refuse
    if not metadata.HasField("num_messages_in_batch"):
        return _decode_singles
    count = metadata.num_messages_in_batch
    if count < 1 or count > _MANY_MESSAGES or _uncompressed_bytes(entry) > _MUCH_BYTES:
        return _refuse
    return _decode_compressed if metadata.compression else _decode_in_place


def _refuse(*_: object) -> pa.RecordBatch:
    raise Irregular


def _decode_in_place(
    buffer: Bytes, run: Sequence[DeliveredEntry], columns: Sequence[str]
) -> pa.RecordBatch:
    start = np.array([entry.start for entry in run], np.int64)
    end = np.array([entry.end for entry in run], np.int64)
    return _decode_batches(Payloads(buffer, start, end, _counts(run)), run, columns)


def _decode_compressed(
    buffer: Bytes, run: Sequence[DeliveredEntry], columns: Sequence[str]
) -> pa.RecordBatch:
    payloads = [_uncompressed(buffer, entry) for entry in run]
    end = np.cumsum([len(payload) for payload in payloads])
    start = np.concatenate([[0], end[:-1]])
    return _decode_batches(Payloads(_padded(*payloads), start, end, _counts(run)), run, columns)


def _padded(*payloads: bytes) -> Bytes:
    return np.frombuffer(b"".join((*payloads, bytes(PADDING_BYTES))), np.uint8)


def _counts(run: Sequence[DeliveredEntry]) -> Int64s:
    return np.array([entry.metadata.num_messages_in_batch for entry in run], np.int64)


def _uncompressed(buffer: Bytes, entry: DeliveredEntry) -> bytes:
    metadata = entry.metadata
    stored = buffer[entry.start : entry.end].tobytes()
    return decompress(stored, metadata.compression, metadata.uncompressed_size)


def _decode_batches(
    payloads: Payloads, run: Sequence[DeliveredEntry], columns: Sequence[str], before: int = 0
) -> pa.RecordBatch:
    """``before``: how many messages of the first entry lie before its payload."""
    heads = find_messages(payloads)
    kept: Int64s | slice = slice(None)
    if COMPACTED_OUT in heads.numbers:
        kept = np.flatnonzero(heads.numbers[COMPACTED_OUT] <= 0)
        heads = heads.take(kept)
    own = columns_of_heads(payloads.buffer, heads, MESSAGE_COLUMNS.keys() & columns)
    if len(own) == len(columns):  # all is told by the messages themselves
        return pa.RecordBatch.from_arrays([own[name] for name in columns], names=list(columns))
    owner = np.repeat(np.arange(len(run)), payloads.count)
    first = np.cumsum(payloads.count) - payloads.count
    batch_index = np.arange(len(owner)) - first[owner] + before
    return _record_batch(own, run, owner[kept], batch_index[kept], columns)


def _decode_singles(
    buffer: Bytes, run: Sequence[DeliveredEntry], columns: Sequence[str]
) -> pa.RecordBatch:
    messages = [_only_message(buffer, entry) for entry in run]
    own = columns_of_messages(messages, MESSAGE_COLUMNS.keys() & columns)
    return _record_batch(own, run, np.arange(len(run)), np.full(len(run), -1, np.int64), columns)


def _only_message(buffer: Bytes, entry: DeliveredEntry) -> DecodedMessage:
    (message,) = _entry(buffer, entry).messages()
    return message


def _decode_odd(
    buffer: Bytes, entry: DeliveredEntry, columns: Sequence[str]
) -> Iterator[DecodedEntries]:
    """Of one that is large, or that bulk does not take: piece by piece; and it knows what is wrong.

    All of it is read before any of it is given, where that is more than one piece.
    """
    if not entry.metadata.HasField("num_messages_in_batch"):
        yield DecodedEntries(entry.id, _decode_singles(buffer, [entry], columns))
        return
    payload = _padded(_entry(buffer, entry).uncompressed())
    try:
        size, count = len(payload) - PADDING_BYTES, entry.metadata.num_messages_in_batch
        pieces = cut_batch(payload, 0, size, count)
        kept, left = {}, _KEPT_BYTES
        for number in range(len(pieces)):
            batch = _decode_piece(payload, pieces, number, entry, columns)
            left -= batch.nbytes
            if left > 0 or len(pieces) == 1:
                kept[number] = batch
        del batch
        for number in range(len(pieces)):
            yield DecodedEntries(
                entry.id,
                kept.pop(number, None) or _decode_piece(payload, pieces, number, entry, columns),
                is_whole=number == len(pieces) - 1,
            )
    except ProtocolError as error:
        raise unreadable_entry(entry.id, error) from None


def _decode_piece(
    payload: Bytes,
    pieces: Sequence[Piece],
    number: int,
    entry: DeliveredEntry,
    columns: Sequence[str],
) -> pa.RecordBatch:
    start, end, count = pieces[number]
    before = sum(piece.messages for piece in pieces[:number])
    place = (np.array([one], np.int64) for one in (start, end, count))
    try:
        return _decode_batches(Payloads(payload, *place), [entry], columns, before)
    except Irregular:
        messages = enumerate(iter_batch(payload.data[start:end], count), before)
        kept = [(index, message) for index, message in messages if not message.is_compacted_out]
        own = columns_of_messages([one for _, one in kept], MESSAGE_COLUMNS.keys() & columns)
        batch_index = np.array([index for index, _ in kept], np.int64)
        return _record_batch(own, [entry], np.zeros(len(kept), np.int64), batch_index, columns)


def _entry(buffer: Bytes, entry: DeliveredEntry) -> Entry:
    metadata = MessageMetadata.from_protobuf(entry.metadata)
    return Entry(entry.id, metadata, buffer[entry.start : entry.end].tobytes())


def _record_batch(
    own: dict[str, pa.Array],
    run: Sequence[DeliveredEntry],
    owner: Int64s,
    batch_index: Int64s,
    columns: Sequence[str],
) -> pa.RecordBatch:
    """Add what an entry's messages have in common; ``owner`` says whose each row is."""
    owners = pa.array(owner)
    for name in columns:
        if name == "batch_index":
            own[name] = pa.array(batch_index.astype(np.int32))
        elif name in ENTRY_COLUMNS:
            values = pa.array([_OF_ENTRY[name](entry) for entry in run], ENTRY_COLUMNS[name])
            own[name] = values.take(owners)
    return pa.RecordBatch.from_arrays([own[name] for name in columns], names=list(columns))


_OF_ENTRY: Final[dict[str, Callable[[DeliveredEntry], Any]]] = {
    "ledger": lambda entry: entry.id.ledger,
    "entry": lambda entry: entry.id.entry,
    "publish_time": lambda entry: signed(entry.metadata.publish_time),
    "producer_name": lambda entry: entry.metadata.producer_name,
    "schema_version": lambda entry: entry.metadata.schema_version or None,
}
