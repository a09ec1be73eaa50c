"""Reads ledgers from tiered storage directly, without the broker."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final
from urllib.parse import quote_plus

import numpy as np
import pyarrow as pa

from eos.admin import AdminClient, StoredLedger
from eos.client import NotFromStorage, StoredRun
from eos.delta.folder import Bucket
from eos.errors import ProtocolError, Retriable, TopicNotFound
from eos.ids import EntryPlace, MessageId, TopicName, TxnId
from eos.sources._offsets import Span
from eos.transport.auth import Auth
from eos.wire.byte_rows import Bytes
from eos.wire.decoding import PADDING_BYTES, Decode, DecodedEntries, DeliveredEntry
from eos.wire.offloaded import DataParser, LedgerIndex

logger = logging.getLogger(__name__)

# Less of a ledger is read through the broker: for small ones that is faster (measured).
_MIN_BYTES: Final = 8 << 20
# One request, and how many are under way at once.
_RANGE_BYTES: Final = 8 << 20
_REQUESTS: Final = 4
# Entries that wait for the end of a transaction before them. Then the broker is asked about it.
_MAX_HELD_BYTES: Final = 64 << 20
_MAX_INDEX_BYTES: Final = 16 << 20  # some 800,000 blocks
_COMMITTED, _ABORTED = 21, 22  # MarkerType of PulsarMarkers.proto


class OtherData(ProtocolError):
    """Stored data is not sound, and entries that were yielded may be of another ledger."""


def worth_reading(span: Span, ledgers: Sequence[StoredLedger]) -> tuple[StoredLedger, ...]:
    """Return the ledgers of a span, without ``upload`` where the broker is faster; none of them if
    it always is."""
    assert span.end is not None
    start = span.start or (0, 0)
    found = []
    for one in ledgers:
        first, last = entries_of(span, one)
        if start[0] <= one.id <= span.end[0] and first <= last:
            share = (last - first + 1) / max(1, one.entries)
            is_worth = one.upload is not None and share * one.bytes >= _MIN_BYTES
            found.append(one if is_worth else replace(one, upload=None))
    return tuple(found) if any(one.upload for one in found) else ()


def entries_of(span: Span, ledger: StoredLedger) -> tuple[int, int]:
    """Return the first and the last entry of a span in one of its ledgers."""
    assert span.end is not None
    first = span.start[1] if span.start is not None and span.start[0] == ledger.id else 0
    return first, (span.end[1] if span.end[0] == ledger.id else ledger.entries) - 1


class TieredStorage:
    """The bucket that a cluster's brokers offload to, for ``PulsarClient.reader``.

    Large ledgers there are read directly, in the format of the brokers' jcloud offloader; anything
    unclear through the broker, with a warning. Credentials come from the environment.

    Args:
        uri: ``s3://bucket``, ``gs://bucket``, ``abfss://container@account.dfs.core.windows.net``,
            or a folder with the objects.
        admin_url: of the admin API, which knows the objects of each topic.

    Raises:
        ConfigurationError: ``uri`` or ``admin_url`` is invalid.
    """

    def __init__(
        self, uri: str, *, admin_url: str, auth: Auth | None = None, timeout_s: float = 30.0
    ) -> None:
        self._bucket = Bucket(uri)
        self._admin = AdminClient(admin_url, auth or Auth(), timeout_s=timeout_s)
        self._open_ledgers: dict[str, int] = {}

    def runs(self, topic: str, start: EntryPlace | None, last: EntryPlace) -> Sequence[StoredRun]:
        """See ``Storage``."""
        known = self._open_ledgers.get(topic)
        # Who is at the topic's end reads from the open ledger, and need not ask each time.
        if start is not None and known is not None and start[0] == last[0] >= known:
            return ()
        try:
            ledgers = self._admin.stored_ledgers(TopicName.parse(topic))
        except Retriable as error:
            logger.warning("Tiered storage is not used: %s The broker is asked.", error.message)
            return ()
        if ledgers:
            self._open_ledgers[topic] = ledgers[-1].id
        planned = PlannedStorage(self._bucket.uri, lambda: self._admin, tuple(ledgers))
        return planned.runs(topic, start, last)


@dataclass(frozen=True)
class PlannedStorage:
    """The same for a topic's known ``ledgers``."""

    uri: str
    admin: Callable[[], AdminClient]
    ledgers: Sequence[StoredLedger]

    def runs(self, topic: str, start: EntryPlace | None, last: EntryPlace) -> Sequence[StoredRun]:
        """See ``Storage``."""
        span = Span(start, (last[0], last[1] + 1))
        found, is_next = [], True
        for ledger in worth_reading(span, self.ledgers):
            if ledger.upload is not None:
                first, end = entries_of(span, ledger)
                read = partial(_read_offloaded, self, TopicName.parse(topic), ledger, first, end)
                found.append(StoredRun(ledger.id, first, end, is_next, read))
            is_next = ledger.upload is not None
        return found


def _read_offloaded(
    storage: PlannedStorage,
    topic: TopicName,
    ledger: StoredLedger,
    first: int,
    last: int,
    decode: Decode,
) -> Iterator[DecodedEntries]:
    folder = Bucket(storage.uri)
    name = f"{ledger.upload}-ledger-{ledger.id}"
    try:
        (size,) = folder.size_bytes([f"{name}-index"])
        if size is None or size > _MAX_INDEX_BYTES:
            raise NotFromStorage(f"{name}-index is missing, or too large")
        index = LedgerIndex.parse(folder.read(f"{name}-index"))
        _check(index, topic, ledger)
        waiting = _Waiting(storage.admin, topic, decode)
        # A part of a block costs the requests of all before it.
        if first - index.blocks[index.block_of(first)][0] > last - first:
            raise NotFromStorage("most of its block is not wanted", is_doubt=False)
        with folder.file_system().open_input_file(name) as file:
            if file.size() != index.data_bytes:
                raise NotFromStorage(f"{name} has {file.size()} bytes, not {index.data_bytes}")
            for buffer, entries in _entries(file, index, ledger.id, first, last):
                yield from waiting.add(buffer, entries)
        yield from waiting.rest()
    except OtherData as error:
        error.message = (
            f"Tiered storage has other data for ledger {ledger.id} of {topic}: {error.message}"
        )
        error.hint = f"Read without tieredStorage, and find out what has written {name}."
        raise
    except (OSError, pa.ArrowException, ProtocolError) as error:  # of a key that is not base64
        raise NotFromStorage(folder.clean(error)) from folder.cause(error)


def _check(index: LedgerIndex, topic: TopicName, ledger: StoredLedger) -> None:
    # As Java's URLEncoder.
    local = quote_plus(topic.local, safe="*").replace("~", "%7E")
    owner = f"{topic.namespace_name}/persistent/{local}"
    found = (index.owner, index.entries, index.entry_bytes)
    if found != (owner, ledger.entries, ledger.bytes):
        raise NotFromStorage(
            f"its object is of {index.owner[:200]!r} with {index.entries} entries of "
            f"{index.entry_bytes} bytes, not of {owner!r} with {ledger.entries} of {ledger.bytes}"
        )


def _entries(
    file: Any, index: LedgerIndex, ledger: int, first: int, last: int
) -> Iterator[tuple[Bytes, list[DeliveredEntry]]]:
    """Yield entries from ``first`` to ``last``, with the buffer that they are in."""
    parser = DataParser(index, first)
    # No entry names its ledger. But together they have the ledger's size.
    is_whole = parser.offset == 0 and last == index.entries - 1
    rest, found_bytes = b"", 0
    doubt: type[Exception] = NotFromStorage
    for piece in _pieces(file, parser.offset, index.data_bytes):
        data = b"".join((rest, piece, bytes(PADDING_BYTES)))
        begin = parser.offset
        try:
            found = parser.parse(memoryview(data)[: len(data) - PADDING_BYTES])
        except ProtocolError as error:
            raise doubt(error.message) from None
        rest = data[parser.offset - begin : len(data) - PADDING_BYTES]
        buffer = np.frombuffer(data, np.uint8)
        found_bytes += sum(one.end - one.start for one in found)
        is_end = bool(found) and found[-1].number >= last
        if is_end and is_whole and found_bytes != index.entry_bytes:
            raise doubt(f"{found_bytes} bytes of entries, not {index.entry_bytes}.")
        entries = [
            DeliveredEntry.parse(MessageId(ledger, one.number), buffer.data, one.start, one.end)
            for one in found
            if first <= one.number <= last
        ]
        if entries:
            yield buffer, entries
            doubt = OtherData
        if is_end:
            return
    raise doubt(f"ledger {ledger} ends before entry {last}.")


def _pieces(file: Any, start: int, end: int) -> Iterator[bytes]:
    """Yield the bytes of a file in pieces, with several requests ahead."""
    under_way: deque[Future[bytes]] = deque()
    pool = ThreadPoolExecutor(_REQUESTS)
    try:
        for offset in range(start, end, _RANGE_BYTES):
            size = min(_RANGE_BYTES, end - offset)
            under_way.append(pool.submit(file.read_at, size, offset))
            if len(under_way) == _REQUESTS:
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


class _Waiting:
    """Holds entries back until all transactions before them have ended."""

    # A transaction's marker comes after its entries: in this ledger, or else the broker is asked.

    def __init__(self, admin: Callable[[], AdminClient], topic: TopicName, decode: Decode) -> None:
        self._admin = admin
        self._topic = topic
        self._decode = decode
        self._held: deque[tuple[Bytes, list[DeliveredEntry]]] = deque()
        self._held_bytes = 0
        self._aborted: dict[TxnId, bool] = {}
        self._loaded_ms: int | None = None

    # Any decision is final: the range ends before the first open transaction of its partition, so
    # what is not aborted was committed. But a broker that is just loading the topic (seconds) calls
    # no transaction aborted yet.

    def add(self, buffer: Bytes, entries: Sequence[DeliveredEntry]) -> Iterator[DecodedEntries]:
        """Take entries; yield those that nothing holds back."""
        messages = []
        for one in entries:
            kind = one.metadata.marker_type if one.metadata.HasField("marker_type") else None
            if kind is None:
                messages.append(one)
            elif kind in (_COMMITTED, _ABORTED):
                self._aborted[_txn(one)] = kind == _ABORTED
        if messages:
            self._held.append((buffer, messages))
            self._held_bytes += len(buffer)
        yield from self._decided()
        while self._held_bytes > _MAX_HELD_BYTES:
            yield from self._first_asked()

    def rest(self) -> Iterator[DecodedEntries]:
        """Yield all that are held."""
        while self._held:
            yield from self._first_asked()

    def _first_asked(self) -> Iterator[DecodedEntries]:
        txn = _txn(self._held[0][1][0])
        admin, before_ms = self._admin(), self._loaded_ms
        try:
            before_ms = before_ms or admin.buffer_loaded_ms(self._topic)
            is_aborted = admin.is_aborted(self._topic, txn)
            if not is_aborted:
                self._loaded_ms = admin.buffer_loaded_ms(self._topic)
        except TopicNotFound:  # of a topic that is not loaded, too (measured)
            raise NotFromStorage(f"the broker does not know transaction {txn}") from None
        if is_aborted is None or not (is_aborted or (before_ms and before_ms == self._loaded_ms)):
            raise NotFromStorage(f"the broker does not know yet how transaction {txn} has ended")
        self._aborted[txn] = is_aborted
        yield from self._decided()

    def _decided(self) -> Iterator[DecodedEntries]:
        while self._held:
            buffer, entries = self._held[0]
            count = self._count_decided(entries)
            kept = [
                one for one in entries[:count] if not (_in_txn(one) and self._aborted[_txn(one)])
            ]
            yield from self._decode(buffer, kept)
            if count < len(entries):
                self._held[0] = buffer, entries[count:]
                return
            self._held.popleft()
            self._held_bytes -= len(buffer)

    def _count_decided(self, entries: Sequence[DeliveredEntry]) -> int:
        for count, one in enumerate(entries):
            if _in_txn(one) and _txn(one) not in self._aborted:
                return count
        return len(entries)


def _in_txn(entry: DeliveredEntry) -> bool:
    return bool(entry.metadata.HasField("txnid_most"))


def _txn(entry: DeliveredEntry) -> TxnId:
    return TxnId(entry.metadata.txnid_most, entry.metadata.txnid_least)
