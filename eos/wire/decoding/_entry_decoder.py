"""Decodes delivered entries to Arrow record batches with one row for each message."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, Self

import numpy as np
import pyarrow as pa

from eos.errors import ConfigurationError, ProtocolError
from eos.ids import MessageId
from eos.wire.batch import Entry, decompress, iter_batch
from eos.wire.binary_columns import Int64s
from eos.wire.byte_rows import Bytes
from eos.wire.commands import MessageMetadata
from eos.wire.decoding._message_boundaries import Payloads, Piece, cut_batch, find_messages
from eos.wire.decoding._message_columns import (
    MESSAGE_COLUMNS,
    TIME,
    columns_of_headers,
    columns_of_messages,
    columns_of_metadata,
    signed,
)
from eos.wire.decoding._message_headers import COMPACTED_OUT, PADDING_BYTES, Irregular, Spans
from eos.wire.frames import locate_metadata, unreadable_entry
from eos.wire.messages import readable

# The columns that are the same for all messages of an entry.
ENTRY_COLUMNS: Final = {
    "ledger": pa.int64(),
    "entry": pa.int64(),
    "publish_time": TIME,
    "producer_name": pa.string(),
    "schema_version": pa.binary(),
    "encryption_context": pa.string(),
}

# Uncompressed bytes that are decoded together. The results of more leave the processor's caches
# before they are used, and the allocator returns their memory to the system each time (measured: a
# third more time).
GROUP_BYTES: Final = 2 << 20
# A larger entry is read in pieces: a message takes some 400 bytes while its header is read.
_MAX_BULK_BYTES: Final = 8 << 20
_MAX_BULK_MESSAGES: Final = 200_000
# Decoded pieces that wait until the whole entry is validated; others are decoded again later.
_MAX_CACHED_BYTES: Final = 32 << 20

# ``batch_index`` is -1 for a message that was sent outside of a batch; ``encryption_context`` is
# null except for an entry that could not be decrypted (``Decryptor``).
COLUMNS: Final = {**MESSAGE_COLUMNS, **ENTRY_COLUMNS, "batch_index": pa.int32()}


class DeliveredEntry(NamedTuple):
    """One entry in a buffer: its id, its parsed ``MessageMetadata``, and its payload's position."""

    id: MessageId
    metadata: Any
    start: int
    end: int
    encryption_context: str | None = None

    @classmethod
    def parse(cls, place: MessageId, data: memoryview, start: int, end: int) -> Self:
        """Parse the entry in ``data[start:end]``, as brokers send it and bookies store it.

        Raises:
            ProtocolError: it is malformed, or its checksum is wrong.
        """
        try:
            metadata_start, metadata_end = locate_metadata(data, start, end)
            metadata = MessageMetadata.parse(data[metadata_start:metadata_end])
        except ProtocolError as error:
            raise unreadable_entry(place, error) from None
        return cls(place, metadata, metadata_end, end)


class DecodedEntries(NamedTuple):
    """The messages of one or more entries, and the id of the last of these entries.

    ``is_whole``: the batch contains the end of the last entry.
    """

    last_id: MessageId
    batch: pa.RecordBatch
    is_whole: bool = True


_BulkDecoder = Callable[[Bytes, Sequence[DeliveredEntry], Sequence[str]], pa.RecordBatch]


def checked_columns(names: Sequence[str]) -> tuple[str, ...]:
    """Return ``names`` if they are valid columns.

    Raises:
        ConfigurationError: a name is unknown or a duplicate, or there are no names.
    """
    unknown = [name for name in names if name not in COLUMNS]
    if unknown or not names or len(set(names)) < len(names):
        problem = (
            f"Column {unknown[0]!r} does not exist."
            if unknown
            else f"columns must be a non-empty list without duplicates, not {list(names)!r}."
        )
        raise ConfigurationError(problem, hint=f"Choose from {', '.join(COLUMNS)}.")
    return tuple(names)


def decode_entries(
    buffer: Bytes, entries: Iterable[DeliveredEntry], columns: Sequence[str]
) -> Iterator[DecodedEntries]:
    """Decode ``entries``, in order, to record batches of a few MiB of uncompressed messages, or of
    a single message. Batches are created lazily: a few bytes may decompress to many.

    Messages that a compaction has removed from a batch are omitted.

    Args:
        buffer: contains the payloads, in order, and 8 more bytes after the last one.
        columns: names of ``COLUMNS``.

    Raises:
        ProtocolError: an entry is malformed, encrypted, or a chunk of a message. The batches before
            it have been yielded, and nothing of it.
    """
    for read, alike in itertools.groupby(entries, _bulk_decoder):
        for group in _split_by_size(list(alike)):
            yield from _decode_group(read, buffer, group, columns)


def _split_by_size(alike: Sequence[DeliveredEntry]) -> Iterator[Sequence[DeliveredEntry]]:
    first = size = 0
    for number, entry in enumerate(alike):
        size += _uncompressed_bytes(entry)
        if size > GROUP_BYTES and number > first:
            yield alike[first:number]
            first, size = number, _uncompressed_bytes(entry)
    yield alike[first:]


def _uncompressed_bytes(entry: DeliveredEntry) -> int:
    metadata = entry.metadata
    size: int = metadata.uncompressed_size if metadata.compression else entry.end - entry.start
    return size


def _decode_group(
    read: _BulkDecoder, buffer: Bytes, run: Sequence[DeliveredEntry], columns: Sequence[str]
) -> Iterator[DecodedEntries]:
    try:
        yield DecodedEntries(run[-1].id, read(buffer, run, columns))
    except (Irregular, ProtocolError):
        if len(run) == 1:
            yield from _decode_in_pieces(buffer, run[0], columns)
            return
        # Halved, until the entry that is irregular or malformed is alone.
        half = len(run) // 2
        yield from _decode_group(read, buffer, run[:half], columns)
        yield from _decode_group(read, buffer, run[half:], columns)


def _bulk_decoder(entry: DeliveredEntry) -> _BulkDecoder:
    metadata = entry.metadata
    if metadata.encryption_keys or metadata.num_chunks_from_msg > 1:
        return _not_in_bulk
    # "If this message is really a batch of multiple entries, this field must be set".
    if not metadata.HasField("num_messages_in_batch"):
        return _decode_singles
    count = metadata.num_messages_in_batch
    if count < 1 or count > _MAX_BULK_MESSAGES or _uncompressed_bytes(entry) > _MAX_BULK_BYTES:
        return _not_in_bulk
    return _decode_run_of_batches


def _not_in_bulk(*_: object) -> pa.RecordBatch:
    raise Irregular


def _decode_run_of_batches(
    buffer: Bytes, run: Sequence[DeliveredEntry], columns: Sequence[str]
) -> pa.RecordBatch:
    count = np.array([entry.metadata.num_messages_in_batch for entry in run], np.int64)
    return _decode_batches(Payloads(*_located(buffer, run), count), run, columns)


def _located(buffer: Bytes, run: Sequence[DeliveredEntry]) -> tuple[Bytes, Int64s, Int64s]:
    """Return a buffer with the uncompressed payloads, their starts and their ends."""
    if not any(entry.metadata.compression for entry in run):
        start = np.array([entry.start for entry in run], np.int64)
        return buffer, start, np.array([entry.end for entry in run], np.int64)
    payloads = [_uncompressed(buffer, entry) for entry in run]
    end = np.cumsum([len(payload) for payload in payloads])
    return padded(*payloads), np.concatenate([[0], end[:-1]]), end


def padded(*payloads: bytes) -> Bytes:
    """Return the buffer of ``payloads`` for ``decode_entries``."""
    return np.frombuffer(b"".join((*payloads, bytes(PADDING_BYTES))), np.uint8)


def _uncompressed(buffer: Bytes, entry: DeliveredEntry) -> bytes:
    metadata = entry.metadata
    stored = buffer[entry.start : entry.end].tobytes()
    return decompress(stored, metadata.compression, metadata.uncompressed_size)


def _decode_batches(
    payloads: Payloads, run: Sequence[DeliveredEntry], columns: Sequence[str], before: int = 0
) -> pa.RecordBatch:
    # ``before``: the number of the first entry's messages that come before its payload.
    headers = find_messages(payloads)
    kept: Int64s | slice = slice(None)
    if COMPACTED_OUT in headers.numbers:
        kept = np.flatnonzero(headers.numbers[COMPACTED_OUT] <= 0)
        headers = headers.take(kept)
    own = columns_of_headers(payloads.buffer, headers, MESSAGE_COLUMNS.keys() & columns)
    if len(own) == len(columns):  # no column of entries
        return pa.RecordBatch.from_arrays([own[name] for name in columns], names=list(columns))
    owner = np.repeat(np.arange(len(run)), payloads.count)
    first = np.cumsum(payloads.count) - payloads.count
    batch_index = np.arange(len(owner)) - first[owner] + before
    return _record_batch(own, run, owner[kept], batch_index[kept], columns)


def _decode_singles(
    buffer: Bytes, run: Sequence[DeliveredEntry], columns: Sequence[str]
) -> pa.RecordBatch:
    buffer, start, end = _located(buffer, run)
    metadata = [entry.metadata for entry in run]
    names = MESSAGE_COLUMNS.keys() & columns
    own = columns_of_metadata(buffer, Spans(start, end - start), metadata, names)
    return _record_batch(own, run, np.arange(len(run)), np.full(len(run), -1, np.int64), columns)


def _decode_in_pieces(
    buffer: Bytes, entry: DeliveredEntry, columns: Sequence[str]
) -> Iterator[DecodedEntries]:
    """Decode a large or irregular entry piece by piece, or find out what is wrong with it."""
    if not entry.metadata.HasField("num_messages_in_batch"):
        own = columns_of_messages(
            entry_of(buffer, entry).messages(), MESSAGE_COLUMNS.keys() & columns
        )
        one = np.zeros(1, np.int64)
        yield DecodedEntries(entry.id, _record_batch(own, [entry], one, one - 1, columns))
        return
    payload = padded(entry_of(buffer, entry).uncompressed())
    try:
        size, count = len(payload) - PADDING_BYTES, entry.metadata.num_messages_in_batch
        pieces = cut_batch(payload, 0, size, count)
        # All pieces are decoded before the first one is yielded, so that nothing of a malformed
        # entry is.
        kept, left = {}, _MAX_CACHED_BYTES
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


def entry_of(buffer: Bytes, entry: DeliveredEntry) -> Entry:
    """Return a copy of the entry.

    Raises:
        ProtocolError: its metadata lack a field; names the entry.
    """
    try:
        metadata = MessageMetadata.from_protobuf(entry.metadata)
    except ProtocolError as error:
        raise unreadable_entry(entry.id, error) from None
    # The buffer is used again for the next entries.
    return Entry(entry.id, metadata, buffer[entry.start : entry.end].tobytes())


def _record_batch(
    own: dict[str, pa.Array],
    run: Sequence[DeliveredEntry],
    owner: Int64s,
    batch_index: Int64s,
    columns: Sequence[str],
) -> pa.RecordBatch:
    """Add the columns of entries; ``owner``: the number of each row's entry in ``run``."""
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
    "producer_name": lambda entry: readable(entry.metadata.producer_name),
    "schema_version": lambda entry: entry.metadata.schema_version or None,
    "encryption_context": lambda entry: entry.encryption_context,
}
