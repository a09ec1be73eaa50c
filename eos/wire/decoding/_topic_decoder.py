"""Decodes a topic's entries: encrypted ones and chunks too, which are made plain one by one."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa

from eos.errors import ProtocolError
from eos.wire.batch import Entry
from eos.wire.byte_rows import Bytes
from eos.wire.decoding._entry_decoder import (
    COLUMNS,
    GROUP_BYTES,
    DecodedEntries,
    DeliveredEntry,
    decode_entries,
    entry_of,
    padded,
)
from eos.wire.encryption import Decryptor
from eos.wire.frames import unreadable_entry
from eos.wire.opened_entries import EntryOpener, NoMessage

Decode = Callable[[Bytes, Sequence[DeliveredEntry]], Iterator[DecodedEntries]]
"""A ``TopicDecoder``."""


class TopicDecoder:
    """Decodes the entries of one exact topic, which come in their order.

    A message that was sent in chunks is returned with its last one, and has its id.

    Args:
        columns: names of ``COLUMNS``.
        decryptor: None: encrypted entries are errors.
        earlier: see ``EntryOpener``.
    """

    def __init__(
        self,
        columns: Sequence[str],
        decryptor: Decryptor | None = None,
        earlier: Callable[[Entry], Iterable[Iterable[Entry]]] = lambda _: (),
    ) -> None:
        self._columns = columns
        self._opens_encrypted = decryptor is not None
        self._opener = EntryOpener(decryptor, earlier)

    def __call__(
        self, buffer: Bytes, entries: Sequence[DeliveredEntry]
    ) -> Iterator[DecodedEntries]:
        """Decode ``entries`` as ``decode_entries`` does.

        Raises:
            ProtocolError: an entry is malformed, or can't be decrypted. The batches before it have
                been yielded, and nothing of it.
            EosError: of ``earlier``, or whether there is a key can't be found out.
        """
        for is_plain, alike in itertools.groupby(entries, self._is_plain):
            if is_plain:
                yield from decode_entries(buffer, alike, self._columns)
            else:
                yield from self._decode_opened(buffer, alike)

    def _is_plain(self, entry: DeliveredEntry) -> bool:
        metadata = entry.metadata
        is_encrypted = bool(metadata.encryption_keys) and self._opens_encrypted
        return not is_encrypted and metadata.num_chunks_from_msg <= 1

    def _decode_opened(
        self, buffer: Bytes, entries: Iterable[DeliveredEntry]
    ) -> Iterator[DecodedEntries]:
        opened: list[DeliveredEntry] = []
        payloads: list[bytes] = []
        at = 0

        def decoded() -> Iterator[DecodedEntries]:
            nonlocal at
            yield from decode_entries(padded(*payloads), opened, self._columns)
            opened.clear()
            payloads.clear()
            at = 0

        for delivered in entries:
            try:
                found = self._opener.open(entry_of(buffer, delivered))
            except ProtocolError as error:
                yield from decoded()
                raise _named(error, delivered) from None
            if isinstance(found, NoMessage):
                yield from decoded()
                # Without rows, but with its id: a reader waits until it has passed each entry.
                yield DecodedEntries(delivered.id, self._no_rows())
                continue
            end = at + len(found.entry.payload)
            metadata = found.entry.metadata.to_protobuf()
            opened.append(DeliveredEntry(delivered.id, metadata, at, end, found.context))
            payloads.append(found.entry.payload)
            at = end
            if at > GROUP_BYTES:
                yield from decoded()
        yield from decoded()

    def _no_rows(self) -> pa.RecordBatch:
        kinds = pa.schema([(name, COLUMNS[name]) for name in self._columns])
        return pa.RecordBatch.from_pylist([], kinds)


def _named(error: ProtocolError, entry: DeliveredEntry) -> ProtocolError:
    return error if error.place is not None else unreadable_entry(entry.id, error)
