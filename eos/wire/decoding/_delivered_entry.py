"""Finds the entries in many frames at once: the metadata of each, and where its payload is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from eos.errors import ProtocolError
from eos.ids import MessageId
from eos.wire.binary_columns import Int64s
from eos.wire.byte_rows import Bytes
from eos.wire.checksum import crc32c
from eos.wire.commands import TYPE_NUMBERS, Deliver, MessageMetadata
from eos.wire.decoding._message_headers import FieldCursor
from eos.wire.frames import MAGIC_BROKER_METADATA, MAGIC_CRC32C, locate_metadata, unreadable_entry

_DELIVER: Final = TYPE_NUMBERS[Deliver]
# Fewer take longer at once than one by one (measured).
_LEAST_AT_ONCE: Final = 12
# Of an entry with a checksum and the metadata that it must have. The cursor needs as many bytes
# after a command.
_LEAST_ENTRY_BYTES: Final = 16


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


def entries_of_frames(
    buffer: Bytes, frames: Sequence[tuple[int, int]]
) -> list[DeliveredEntry | None]:
    """Return the entry in each frame of a MESSAGE; None: the frame has to be read alone.

    Those are frames of other commands, malformed ones, and any that are not as brokers write them.

    Args:
        frames: starts, after the total size, and ends.
    """
    if len(frames) < _LEAST_AT_ONCE:
        return [None] * len(frames)
    start, end = np.array(frames, np.int64).T
    rows, at, ids = _delivered(buffer, start, end)
    return _entries(buffer, rows, ids, at, end[rows], len(frames))


def entries_of_ledger(
    buffer: Bytes, ledger: int, stored: Sequence[tuple[int, int, int]]
) -> list[DeliveredEntry]:
    """Return entries of one ledger, each of which is stored in ``buffer[start:end]``.

    Args:
        stored: numbers, starts and ends.

    Raises:
        ProtocolError: one is malformed, or its checksum is wrong.
    """
    found: list[DeliveredEntry | None] = [None] * len(stored)
    if len(stored) >= _LEAST_AT_ONCE:
        number, start, end = np.array(stored, np.int64).T
        none = np.full(len(stored), -1, np.int64)
        ids = [np.full(len(stored), ledger, np.int64), number, none, none]
        found = _entries(buffer, np.arange(len(stored)), ids, start, end, len(stored))
    return [
        DeliveredEntry.parse(MessageId(ledger, one[0]), buffer.data, one[1], one[2])
        if entry is None
        else entry
        for one, entry in zip(stored, found, strict=True)
    ]


def _entries(
    buffer: Bytes, rows: Int64s, ids: Sequence[Int64s], at: Int64s, end: Int64s, count: int
) -> list[DeliveredEntry | None]:
    """Return ``count`` entries: at ``rows`` those at ``at``, as far as they are ordinary."""
    found: list[DeliveredEntry | None] = [None] * count
    kept, *positions = _positions(buffer, at, end)
    columns = [rows[kept], *(one[kept] for one in ids), *positions, end[kept]]
    data = buffer.data
    for row, ledger, entry, partition, batch_index, body, checksum, begin, payload, last in zip(
        *(one.tolist() for one in columns), strict=True
    ):
        if crc32c(data[body:last]) != checksum:
            continue
        try:
            metadata = MessageMetadata.parse(data[begin:payload])
        except ProtocolError:
            continue
        place = MessageId(ledger, entry, partition, batch_index)
        found[row] = DeliveredEntry(place, metadata, payload, last)
    return found


def _delivered(
    buffer: Bytes, start: Int64s, end: Int64s
) -> tuple[Int64s, Int64s, Sequence[Int64s]]:
    """Return the frames of an ordinary MESSAGE, where their entries are, and the four parts of the
    entries' ids."""
    after = start + 4 + _big_endian(buffer, 4)[start]
    rows = np.flatnonzero(after + _LEAST_ENTRY_BYTES <= end)
    # In the order of the fields' numbers, as brokers write them.
    envelope = FieldCursor(buffer, start[rows] + 4, after[rows])
    kind, found = envelope.number(1 << 3), envelope.blob(_DELIVER << 3 | 2)
    if kind is None or found is None:
        return rows[:0], rows[:0], [rows[:0]] * 4
    kept = np.flatnonzero(envelope.is_done & (kind == _DELIVER) & (found.size > 0))
    rows, found = rows[kept], found.take(kept)
    command = FieldCursor(buffer, found.at, found.at + found.size)
    command.number(1 << 3)  # the consumer
    found = command.blob(2 << 3 | 2)
    command.number(3 << 3)  # earlier deliveries
    command.number(5 << 3)  # the consumer's epoch
    if found is None:
        return rows[:0], rows[:0], [rows[:0]] * 4
    kept = np.flatnonzero(command.is_done & (found.size > 0))
    rows, found = rows[kept], found.take(kept)
    place = FieldCursor(buffer, found.at, found.at + found.size)
    columns = [place.number(1 << 3), place.number(2 << 3)]
    # Partition and batch index: without one it is -1, in ten bytes.
    columns += [place.number(3 << 3, is_signed=True), place.number(4 << 3, is_signed=True)]
    place.number(6 << 3)  # the size of a batch
    none = np.full(len(rows), -1, np.int64)
    ids = [none if one is None else one for one in columns]
    kept = np.flatnonzero(place.is_done & (ids[0] >= 0) & (ids[1] >= 0))
    return rows[kept], after[rows[kept]], [one[kept] for one in ids]


def _positions(buffer: Bytes, at: Int64s, end: Int64s) -> Sequence[Int64s]:
    """Return which entries have a checksum; of each of those, from where on it is, the checksum,
    and where metadata and payload are. See ``locate_metadata``."""
    magic, number = _big_endian(buffer, 2), _big_endian(buffer, 4)
    kept = np.flatnonzero(at + _LEAST_ENTRY_BYTES <= end)
    at, end = at[kept], end[kept]
    has_more = magic[at] == MAGIC_BROKER_METADATA
    if has_more.any():
        at = at + np.where(has_more, 6 + number[at + 2], 0)
        fits = np.flatnonzero(at + _LEAST_ENTRY_BYTES <= end)
        kept, at, end = kept[fits], at[fits], end[fits]
    payload = at + 10 + number[at + 6]
    fits = np.flatnonzero((magic[at] == MAGIC_CRC32C) & (payload <= end))
    kept, at, payload = kept[fits], at[fits], payload[fits]
    return [kept, at + 6, number[at + 2], at + 10, payload]


def _big_endian(buffer: Bytes, size: int) -> npt.NDArray[Any]:
    """Return a view of ``buffer`` as overlapping big-endian numbers: number i begins at byte i."""
    return np.ndarray((len(buffer) - size + 1,), f">u{size}", buffer, strides=(1,))
