"""A reader on one exact topic: what is committed there, as Arrow record batches.

The broker decides what is readable: nothing of an aborted transaction, nothing at or behind the
first entry of one that is open.
"""

from __future__ import annotations

import contextlib
import copy
import time
import uuid
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Final, Self

import numpy as np
import pyarrow as pa

from eos.client._lookup import Lookup
from eos.client._subscriptions import prefix_hint
from eos.errors import ConnectionLost, DataLost, EosError, Fatal, RequestTimeout
from eos.ids import EntryPlace, MessageId
from eos.transport.blocking_connection import BlockingConnection
from eos.wire import commands
from eos.wire.commands import MessageIdData
from eos.wire.decoding import DecodedEntries, DeliveredEntry, decode_entries

_CONSUMER: Final = 0
_PERMITS: Final = 2**30
"""Messages that the broker may send at once: TCP holds it back when we are slower (measured)."""

_FEW_ENTRIES: Final = 100
"""Of so few, no more than these are asked for: the broker reads as many entries as it has permits,
and at most 100, or 5 MiB, at once. Else it reads and sends all of that for one entry (measured)."""

_LONGEST_WAIT_S: Final = 3600.0


class Reader:
    """Made by ``PulsarClient.reader``; for one thread at a time.

    Columns that can be had: ``value`` (null for a tombstone), ``key`` (bytes, decoded when they
    travel in base64), ``key_is_binary`` (whether they did), ``event_time``, ``publish_time``
    (timestamp, ms, UTC), ``properties`` (map of string to string), ``ordering_key``,
    ``sequence_id``, ``producer_name``, ``schema_version`` (bytes, as the broker counts),
    ``ledger``, ``entry``, ``batch_index`` (-1 outside of a batch).

    It goes on by itself where it was when its topic moves to another broker or a connection is
    lost, for as long as the client's ``timeout_s``. An error that it raises is final: a new reader
    may begin at ``next_id``.
    """

    def __init__(
        self,
        lookup: Lookup,
        topic: str,
        start: MessageId | None,
        columns: Sequence[str],
        timeout_s: float,
        read_compacted: bool = False,
    ) -> None:
        self.topic = topic
        self._lookup = lookup
        self._columns = columns
        self._timeout_s = timeout_s
        self._read_compacted = read_compacted or None
        self._connection: BlockingConnection | None = None
        self._last_id: MessageId | None = None
        self._is_terminated = False
        self._permits = 0
        self._singly = 0  # how many entries to ask for one by one
        # Three places: what was given to the caller, what is to be decoded, what has come.
        self._given = self._position = None if start is None else start.place
        self._rows_given = self._rows_had = 0  # of the entry behind `_given`: once, and before
        self._decoding: Iterator[DecodedEntries] = iter(())
        self._decoding_to: MessageId | None = None
        self._waiting: list[DeliveredEntry] = []
        self._buffer = np.empty(0, np.uint8)  # where they lie
        self._failure: EosError | None = None

    @property
    def next_id(self) -> MessageId | None:
        """Behind the last entry that was given; None: before the topic's first."""
        return None if self._given is None else MessageId(*self._given)

    @property
    def last_id(self) -> MessageId | None:
        """The last entry that was readable when the reader connected; None when there was none.

        Never a marker, never an aborted entry, below every open transaction (measured).
        """
        return self._last_id

    def open(self) -> BlockingConnection:
        """Connect, and SUBSCRIBE without a durable cursor: again and again for ``timeout_s``, as
        topics move.

        Raises:
            TopicNotFound: there is no such topic.
            EosError: the broker refuses, or does not answer.
        """
        from eos.retry import attempts  # executors that only write have no tenacity

        return attempts(self._timeout_s)(self._open)

    def _open(self) -> BlockingConnection:
        self._disconnect()
        connection = self._lookup.dedicated_connection(self.topic)
        try:
            with prefix_hint():
                connection.request(
                    self._subscribe_command,
                    commands.Success,
                    timeout_s=self._timeout_s,
                    doing=f"Opening a reader on {self.topic}",
                )
            self._last_id = self._ask_for_last_id(connection)
        except BaseException:
            connection.close()
            raise
        self._permits = 0
        self._connection = connection
        return connection

    def _subscribe_command(self, request_id: int) -> commands.Subscribe:
        start = None if self._position is None else MessageId(*self._position)
        return commands.Subscribe(
            topic=self.topic,
            subscription=self._lookup.rules.subscription(f"eos-reader-{uuid.uuid4().hex}"),
            subscription_type=commands.SubscriptionType.EXCLUSIVE,
            consumer_id=_CONSUMER,
            request_id=request_id,
            durable=False,
            start_message_id=None if start is None else MessageIdData.of_entry(start),
            read_compacted=self._read_compacted,
            initial_position=commands.InitialPosition.EARLIEST,
            force_topic_creation=False,
        )

    def _ask_for_last_id(self, connection: BlockingConnection) -> MessageId | None:
        answer = connection.request(
            lambda request_id: commands.GetLastMessageId(
                consumer_id=_CONSUMER, request_id=request_id
            ),
            commands.GetLastMessageIdResponse,
            timeout_s=self._timeout_s,
            doing=f"Asking for the last entry of {self.topic}",
        )
        last = answer.last_message_id.message_id()
        return None if last.ledger < 0 else last._replace(batch_index=-1)

    def read(self, *, idle_s: float | None = None) -> Iterator[pa.RecordBatch]:
        """What is there and what comes, from where the last reading stopped.

        Ends when nothing has come for ``idle_s`` (a pause says nothing about what will become
        readable; None: it waits for ever), or behind the last entry of a terminated topic.

        Raises:
            ProtocolError: an entry can't be read; batches before it have been given.
            EosError: the topic can't be read any more.
        """
        yield from self._give()
        yield from self._decode(len(self._waiting))
        heard_at = time.monotonic()  # the caller's own time is no silence
        while not self._is_terminated:
            wait_s = _LONGEST_WAIT_S if idle_s is None else heard_at + idle_s - time.monotonic()
            if wait_s <= 0:
                return
            if self._receive(wait_s, None):
                yield from self._decode(len(self._waiting))
                heard_at = time.monotonic()

    def read_to(self, end: MessageId | None) -> Iterator[pa.RecordBatch]:
        """What lies between where the last reading stopped and ``end``, which is included.

        ``end`` was readable once: ``last_id``, for example. None: nothing.

        Raises:
            DataLost: ``end`` can't be reached any more: entries up to it have been deleted.
            RequestTimeout: nothing came for the client's ``timeout_s``.
            ProtocolError: an entry can't be read; batches before it have been given.
            EosError: the topic can't be read any more.
        """
        ahead = self._decoding_to
        if ahead is not None and (end is None or ahead.place > end.place):
            self._go_back()  # of a reading that was broken off
        yield from self._give()
        heard_at = time.monotonic()
        while end is not None and (self._given is None or self._given <= end.place):
            if self._receive(heard_at + self._timeout_s - time.monotonic(), end):
                wanted = sum(entry.id.place <= end.place for entry in self._waiting)
                yield from self._decode(wanted)
                if self._waiting:  # `end` itself may be no entry that is delivered
                    return
                heard_at = time.monotonic()
            elif time.monotonic() >= heard_at + self._timeout_s:
                self._explain_silence(end)
                heard_at = time.monotonic()

    def _go_back(self) -> None:
        """Read anew what is decoded and was not given."""
        self._stop_decoding()
        self._failure = None
        self._position = self._given
        self._rows_given, self._rows_had = 0, max(self._rows_given, self._rows_had)
        self._disconnect()

    def _stop_decoding(self) -> None:
        self._decoding, self._decoding_to = iter(()), None
        self._waiting.clear()

    def _explain_silence(self, end: MessageId) -> None:
        """Raise why nothing came; once, ask for a while for one entry at a time instead: of what a
        broker has read at once it may have dropped all (``ONE_PERMIT``)."""
        # Not earlier: for a while after a broker's restart nothing is readable (measured).
        self.open()
        if self._last_id is None or self._last_id.place < end.place:
            raise DataLost(
                f"{self.topic} ends at {self._last_id or 'its beginning'}, and was to be read to "
                f"{end}: its entries have been deleted, or were never readable.",
                hint="Look at the topic's retention and time to live. Was the topic recreated?",
            )
        if self._singly:
            raise RequestTimeout(f"Reading {self.topic}: nothing came for {self._timeout_s:g} s.")
        self._singly = _FEW_ENTRIES

    def _decode(self, count: int) -> Iterator[pa.RecordBatch]:
        """Give the first ``count`` entries that wait."""
        wanted, self._waiting = self._waiting[:count], self._waiting[count:]
        if wanted:
            self._decoding = decode_entries(self._buffer, wanted, self._columns)
            self._decoding_to = wanted[-1].id
        yield from self._give()

    def _give(self) -> Iterator[pa.RecordBatch]:
        """Decode no more than is asked for: what is made of a few KB may be many GiB."""
        while self._failure is None:
            try:
                decoded = next(self._decoding, None)
            except EosError as error:
                self._failure = error
                break
            if decoded is None:
                self._decoding_to = None
                return
            batch = self._not_given(decoded)
            if batch.num_rows:
                yield batch
        raise copy.copy(self._failure)

    def _not_given(self, decoded: DecodedEntries) -> pa.RecordBatch:
        """What was not given before the reader went back; the rest counts as given now."""
        batch = decoded.batch
        had = min(batch.num_rows, max(0, self._rows_had - self._rows_given))
        self._rows_given += batch.num_rows
        if decoded.is_whole:
            self._given = _behind(decoded.last_id)
            self._rows_given = self._rows_had = 0
            if decoded.last_id == self._decoding_to:
                self._decoding_to = None
        return batch.slice(had)

    def _receive(self, wait_s: float, end: MessageId | None) -> bool:
        """Have entries wait, unless some do; whether any do now. None behind ``end`` is wanted."""
        if self._waiting:
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
                self._position = _behind(entry.id)
                self._waiting.append(entry)
                self._singly = max(0, self._singly - 1)
        if entries:
            with contextlib.suppress(ConnectionLost):  # found out behind what has come
                self._acknowledge(connection, entries)
        for notice in notices:
            if isinstance(notice, commands.CloseConsumer):
                self._disconnect()
            self._is_terminated |= isinstance(notice, commands.ReachedEndOfTopic)
        return bool(self._waiting)

    def _acknowledge(
        self, connection: BlockingConnection, entries: Sequence[DeliveredEntry]
    ) -> None:
        """Tell the broker what has come: without that it never says that a topic has ended."""
        last = MessageIdData.of_entry(entries[-1].id)
        connection.send(
            commands.Ack(
                consumer_id=_CONSUMER, ack_type=commands.AckType.CUMULATIVE, message_ids=(last,)
            )
        )
        self._permits -= sum(max(1, entry.metadata.num_messages_in_batch) for entry in entries)

    def _permit(self, connection: BlockingConnection, end: MessageId | None) -> None:
        """Let the broker send more, when it has few permits left: an entry may have taken more than
        there were, and others of it none (aborted ones, markers)."""
        low, high = _PERMITS // 2, _PERMITS
        if self._position is not None and end is not None and end.ledger == self._position[0]:
            entries = end.entry - self._position[1] + 1
            if 0 < entries <= _FEW_ENTRIES:
                low, high = 0, entries
        if self._singly:
            low, high = 0, 1
        if self._permits <= low:
            connection.send(commands.Flow(consumer_id=_CONSUMER, permits=high - self._permits))
            self._permits = high

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def close(self) -> None:
        """End it. The second time it does nothing."""
        self._stop_decoding()
        self._failure = Fatal(f"The reader on {self.topic} is closed.")
        self._disconnect()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _behind(message_id: MessageId) -> EntryPlace:
    return message_id.ledger, message_id.entry + 1
