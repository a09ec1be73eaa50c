"""A reader of one exact topic that returns committed messages as Arrow record batches."""

from __future__ import annotations

import contextlib
import copy
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol, Self

import numpy as np
import pyarrow as pa

from eos.client._entry_reader import entries_before
from eos.client._lookup import Lookup
from eos.client._subscriptions import last_id_of, new_subscription, prefix_hint, subscribing
from eos.errors import ConnectionLost, DataLost, EosError, Fatal, RequestTimeout
from eos.ids import EntryPlace, MessageId
from eos.transport.blocking_connection import BlockingConnection
from eos.wire import commands
from eos.wire.commands import MessageIdData
from eos.wire.decoding import Decode, DecodedEntries, DeliveredEntry, TopicDecoder
from eos.wire.encryption import Decryptor

_CONSUMER: Final = 0
# Messages that the broker may have in flight: TCP slows it down if needed (measured).
_PERMITS: Final = 2**30
# Up to this number of entries, grant a permit for each only. The broker reads as many entries as
# it has permits, at most 100 or 5 MiB at once, and would send all of them for one (measured).
_FEW_ENTRIES: Final = 100
_LONGEST_WAIT_S: Final = 3600.0

logger = logging.getLogger(__name__)


class NotFromStorage(Exception):
    """Entries are to be read through the broker: that is faster, or the stored ones are not sound.

    ``is_doubt``: the latter; then so are all that follow.
    """

    def __init__(self, reason: str, *, is_doubt: bool = True) -> None:
        super().__init__(reason)
        self.is_doubt = is_doubt


@dataclass(frozen=True)
class StoredRun:
    """Entries ``first`` to ``last`` of a closed ledger, which storage has, too.

    ``is_next``: no other entries of the span are between it and the run before, or the start.
    ``read``: yields the committed messages, decoded by its argument. NotFromStorage at any time:
    then what was yielded is right. Another error: not all of it may be, or it can't be known.
    """

    ledger: int
    first: int
    last: int
    is_next: bool
    read: Callable[[Decode], Iterator[DecodedEntries]]


class Storage(Protocol):
    """Where a reader finds entries without the broker, such as ``eos.TieredStorage``."""

    def runs(self, topic: str, start: EntryPlace | None, last: EntryPlace) -> Sequence[StoredRun]:
        """Return what is to be read here of a span of an exact topic (None: from its beginning).
        All transactions before ``last`` have ended. EosError if it can't be found out.
        """


class Reader:
    """Made by ``PulsarClient.reader``; for one thread at a time.

    Columns: ``value`` (null for a tombstone), ``key`` (bytes, decoded if they are in base64),
    ``key_is_binary`` (whether they are), ``event_time``, ``publish_time`` (timestamp, ms, UTC),
    ``properties`` (map of string to string), ``ordering_key``, ``sequence_id``, ``producer_name``,
    ``schema_version`` (bytes, the broker's version), ``ledger``, ``entry``, ``batch_index`` (-1
    outside of a batch), ``encryption_context`` (null if it is not encrypted, or was decrypted).

    If its topic moves or the connection is lost, it connects again and continues at its position,
    for up to the client's ``timeout_s``. Its errors are final: a new reader may begin at
    ``next_id``.
    """

    def __init__(
        self,
        lookup: Lookup,
        topic: str,
        start: MessageId | None,
        columns: Sequence[str],
        read_compacted: bool = False,
        storage: Storage | None = None,
        decryptor: Decryptor | None = None,
    ) -> None:
        self.topic = topic
        self._lookup = lookup
        earlier = partial(entries_before, lookup, topic)
        self._decode_entries = TopicDecoder(columns, decryptor, earlier)
        self._timeout_s = lookup.timeout_s
        self._read_compacted = read_compacted or None
        self._storage = storage
        self._connection: BlockingConnection | None = None
        self._last_id: MessageId | None = None
        self._is_terminated = False
        self._permits = 0
        self._single_reads = 0  # how many entries to request one by one
        # The positions after the last returned entry, and after the last received one.
        self._returned = self._position = None if start is None else start.place
        # Rows of the entry at `_returned`: returned since the last rewind, and in total before.
        self._rows_returned = self._rows_before = 0
        self._decoding: Iterator[DecodedEntries] = iter(())
        self._decoding_to: MessageId | None = None
        self._pending: list[DeliveredEntry] = []
        self._buffer = np.empty(0, np.uint8)  # the bytes of pending entries
        self._failure: EosError | None = None

    @property
    def next_id(self) -> MessageId | None:
        """The position after the last returned entry; None: before the topic's first."""
        return None if self._returned is None else MessageId(*self._returned)

    @property
    def last_id(self) -> MessageId | None:
        """The last entry that was readable when the reader connected, or None.

        Never a marker or an aborted entry, and before all open transactions (measured). With
        ``storage`` it connects now, if it has not yet; errors as of ``PulsarClient.reader``.
        """
        if self._storage is not None and self._last_id is None and self._connection is None:
            self.open()
        return self._last_id

    def open(self) -> BlockingConnection:
        """Connect and subscribe, without a durable cursor; retry for ``timeout_s``, as topics move.

        Raises:
            TopicNotFound: the topic does not exist.
            EosError: the broker refuses, or does not answer.
        """
        from eos.retry import attempts  # lazy: executors that only write have no tenacity

        return attempts(self._timeout_s)(self._open)

    def _open(self) -> BlockingConnection:
        self._disconnect()
        connection = self._lookup.dedicated_connection(self.topic)
        try:
            with prefix_hint():
                connection.request(
                    subscribing(
                        self.topic,
                        new_subscription(self._lookup.rules),
                        _CONSUMER,
                        # Continue where the last connection broke, not at the beginning.
                        start=None if self._position is None else MessageId(*self._position),
                        read_compacted=self._read_compacted,
                    ),
                    commands.Success,
                    timeout_s=self._timeout_s,
                    doing=f"Opening a reader on {self.topic}",
                )
            answer = connection.request(
                lambda request_id: commands.GetLastMessageId(
                    consumer_id=_CONSUMER, request_id=request_id
                ),
                commands.GetLastMessageIdResponse,
                timeout_s=self._timeout_s,
                doing=f"Asking for the last entry of {self.topic}",
            )
            self._last_id = last_id_of(answer)
        except BaseException:
            connection.close()
            raise
        self._permits = 0
        self._connection = connection
        return connection

    def read(self, *, idle_s: float | None = None) -> Iterator[pa.RecordBatch]:
        """Yield existing and new messages, from the last position on.

        It ends if nothing comes for ``idle_s``, or after the last entry of a terminated topic. A
        pause does not mean that no more will become readable; None: wait forever.

        Raises:
            ProtocolError: an entry can't be read; earlier batches were returned.
            EosError: the topic can't be read any more.
        """
        if self._storage is not None and self.last_id is not None:
            yield from self._read_stored(self._storage, self.last_id)
        yield from self._decoded()
        yield from self._decode(len(self._pending))
        received_at = time.monotonic()  # the caller's time does not count as silence
        while not self._is_terminated:
            wait_s = _LONGEST_WAIT_S if idle_s is None else received_at + idle_s - time.monotonic()
            if wait_s <= 0:
                return
            if self._receive(wait_s, None):
                yield from self._decode(len(self._pending))
                received_at = time.monotonic()

    def read_to(self, end: MessageId | None) -> Iterator[pa.RecordBatch]:
        """Yield the messages from the last position to ``end``, inclusive.

        ``end`` must have been readable once, for example ``last_id``. None: nothing.

        Raises:
            DataLost: ``end`` can't be reached: entries up to it were deleted.
            RequestTimeout: nothing came for the client's ``timeout_s``.
            ProtocolError: an entry can't be read; earlier batches were returned.
            EosError: the topic can't be read any more.
        """
        if self._storage is not None and end is not None:
            yield from self._read_stored(self._storage, end)
        yield from self._read_to(end)

    def _read_stored(self, storage: Storage, end: MessageId) -> Iterator[pa.RecordBatch]:
        """Yield the messages up to the end of what is read from storage."""
        is_behind = False  # whether the broker has to be asked for entries before the next run
        for run in storage.runs(self.topic, self._returned, end.place):
            if is_behind or not run.is_next:
                # It ends with the first entry that comes of the run.
                yield from self._read_to(MessageId(run.ledger, run.first - 1))
            try:
                # Also if the caller goes away here: the next call begins after what was returned.
                self._rewind()
                for decoded in run.read(self._decode_entries):
                    batch = self._new_rows(decoded)
                    if batch.num_rows:
                        yield batch
                self._returned, is_behind = (run.ledger, run.last + 1), False
            except NotFromStorage as reason:
                is_behind = True
                if reason.is_doubt:
                    logger.warning(
                        "%s: ledger %d can't be read from tiered storage: %s. The broker is asked.",
                        self.topic,
                        run.ledger,
                        str(reason).rstrip("."),
                    )
                    return
            finally:
                self._rewind()

    def _read_to(self, end: MessageId | None) -> Iterator[pa.RecordBatch]:
        ahead = self._decoding_to
        if ahead is not None and (end is None or ahead.place > end.place):
            self._rewind()  # an interrupted read was further
        yield from self._decoded()
        received_at = time.monotonic()
        while end is not None and (self._returned is None or self._returned <= end.place):
            if self._receive(received_at + self._timeout_s - time.monotonic(), end):
                wanted = sum(entry.id.place <= end.place for entry in self._pending)
                yield from self._decode(wanted)
                if self._pending:  # `end` may be an entry that is not delivered
                    return
                received_at = time.monotonic()
            elif time.monotonic() >= received_at + self._timeout_s:
                self._handle_silence(end)
                received_at = time.monotonic()

    def _rewind(self) -> None:
        """Go back to the last returned message, and receive the following entries again."""
        self._stop_decoding()
        self._failure = None
        self._position = self._returned
        self._rows_returned, self._rows_before = 0, max(self._rows_returned, self._rows_before)
        self._disconnect()

    def _stop_decoding(self) -> None:
        self._decoding, self._decoding_to = iter(()), None
        self._pending.clear()

    def _handle_silence(self, end: MessageId) -> None:
        """Raise the reason why nothing came; the first time, request single entries instead."""
        # Only now: after a broker's restart nothing is readable for a while (measured).
        self.open()
        if self._last_id is None or self._last_id.place < end.place:
            raise DataLost(
                f"{self.topic} ends at {self._last_id or 'its beginning'} and can't be read up to "
                f"{end}: its entries have been deleted, or were never readable.",
                hint="Check the topic's retention and time to live. Was the topic recreated?",
            )
        # The broker may have dropped all entries that it read at once (``ONE_PERMIT``).
        if self._single_reads:
            raise RequestTimeout(f"Reading {self.topic}: nothing came for {self._timeout_s:g} s.")
        self._single_reads = _FEW_ENTRIES

    def _decode(self, count: int) -> Iterator[pa.RecordBatch]:
        wanted, self._pending = self._pending[:count], self._pending[count:]
        if wanted:
            self._decoding = self._decode_entries(self._buffer, wanted)
            self._decoding_to = wanted[-1].id
        yield from self._decoded()

    def _decoded(self) -> Iterator[pa.RecordBatch]:
        """Decode lazily: a few KB may decode to many GiB."""
        while self._failure is None:
            try:
                decoded = next(self._decoding, None)
            except EosError as error:
                self._failure = error
                break
            if decoded is None:
                self._decoding_to = None
                return
            batch = self._new_rows(decoded)
            if batch.num_rows:
                yield batch
        raise copy.copy(self._failure)

    def _new_rows(self, decoded: DecodedEntries) -> pa.RecordBatch:
        """Return the rows that were not returned before a rewind, and count them as returned."""
        batch = decoded.batch
        skipped = min(batch.num_rows, max(0, self._rows_before - self._rows_returned))
        self._rows_returned += batch.num_rows
        if decoded.is_whole:
            self._returned = _after(decoded.last_id)
            self._rows_returned = self._rows_before = 0
            if decoded.last_id == self._decoding_to:
                self._decoding_to = None
        return batch.slice(skipped)

    def _receive(self, wait_s: float, end: MessageId | None) -> bool:
        """Receive entries, up to ``end`` if possible, unless some are pending; False: none came."""
        if self._pending:
            return True
        try:
            connection = self._connection or self.open()
            self._permit(connection, end)
            entries, notices = connection.receive(wait_s)
        except ConnectionLost:
            self._disconnect()
            return False
        self._buffer = connection.buffer
        for entry in entries:
            # With a start past its end the broker delivers the whole topic again (measured).
            if self._position is None or entry.id.place >= self._position:
                self._position = _after(entry.id)
                self._pending.append(entry)
                self._single_reads = max(0, self._single_reads - 1)
        if entries:
            with contextlib.suppress(ConnectionLost):  # the next receive raises it
                self._acknowledge(connection, entries)
        for notice in notices:
            # The broker sends nothing more to it: waiting would never end.
            if isinstance(notice, commands.CloseConsumer):
                self._disconnect()
            self._is_terminated |= isinstance(notice, commands.ReachedEndOfTopic)
        return bool(self._pending)

    def _acknowledge(
        self, connection: BlockingConnection, entries: Sequence[DeliveredEntry]
    ) -> None:
        # Otherwise the broker never reports a topic's end.
        last = MessageIdData.of_entry(entries[-1].id)
        connection.send(
            commands.Ack(
                consumer_id=_CONSUMER, ack_type=commands.AckType.CUMULATIVE, message_ids=(last,)
            )
        )
        self._permits -= sum(max(1, entry.metadata.num_messages_in_batch) for entry in entries)

    def _permit(self, connection: BlockingConnection, end: MessageId | None) -> None:
        """Grant permits if few are left."""
        # An entry may have used more than there were; aborted entries and markers use none.
        low, high = _PERMITS // 2, _PERMITS
        if self._position is not None and end is not None and end.ledger == self._position[0]:
            entries = end.entry - self._position[1] + 1
            if 0 < entries <= _FEW_ENTRIES:
                low, high = 0, entries
        if self._single_reads:
            low, high = 0, 1
        if self._permits <= low:
            connection.send(commands.Flow(consumer_id=_CONSUMER, permits=high - self._permits))
            self._permits = high

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def close(self) -> None:
        """Close it. May be called twice."""
        self._stop_decoding()
        self._failure = Fatal(f"The reader on {self.topic} is closed.")
        self._disconnect()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _after(message_id: MessageId) -> EntryPlace:
    return message_id.ledger, message_id.entry + 1
