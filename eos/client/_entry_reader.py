"""A reader of one exact topic that returns its entries as they are stored, one after the other."""

from __future__ import annotations

import copy
import time
from collections import deque
from collections.abc import Iterator
from contextlib import closing
from typing import Final, Self

from eos.client._lookup import Lookup
from eos.client._subscriptions import (
    MOST_PERMITS,
    new_subscription,
    subscribe,
    subscribing,
    unsubscribe,
)
from eos.client._topic_bounds import TopicBounds
from eos.errors import (
    ConfigurationError,
    ConnectionLost,
    EosError,
    Fatal,
    ProtocolError,
    RequestTimeout,
)
from eos.ids import MessageId
from eos.transport.connection import Connection
from eos.waiting import Monitor
from eos.wire import commands
from eos.wire.batch import Entry
from eos.wire.commands import MessageIdData
from eos.wire.frames import Delivery

# The number of messages that the broker may have in flight. It counts messages, and reads at most
# as many entries as it has permits, so no more entries than that are queued here. No permits are
# granted before a read: a broker with permits and nothing to send polls for new entries only every
# 10 ms, if an entry came at the wrong moment (measured).
PERMITS: Final = 1000

ONE_PERMIT: Final = 1
"""The permits of a reader that must not miss an entry. A broker silently drops all entries that it
has read at once if their claimed numbers of messages add up to 0 (``Consumer.sendMessages``;
measured). An entry that is read alone takes no other with it."""

# Permits can't enforce this limit, as entries differ in size.
MAX_QUEUED_BYTES: Final = 64 * 1024 * 1024

_LONGEST_WAIT_S: Final = 3600.0

# All chunks have the publish time of their message. But other producers' clocks differ, and the
# broker's search by time assumes that times never decrease.
_SLACKS_MS: Final = (1_000, 60_000)


def checked_start(start: MessageId | None) -> MessageId | None:
    """Check that a reader can begin at ``start``, and return it.

    Raises:
        ConfigurationError: it is neither None nor a ``MessageId``.
    """
    if start is None or isinstance(start, MessageId):
        return start
    raise ConfigurationError(
        f"start must be an eos.ids.MessageId or None, not {start!r}.",
        hint="None begins at the topic's first entry, MessageId(ledger, entry) at that one; "
        "client.topic_bounds(topic) has the topic's end, and the entry of a publish time.",
    )


class EntryReader:
    """Made by ``PulsarClient.entry_reader``; for one thread at a time.

    A failed reader stays failed; create a new one that begins at ``next_id``.
    """

    def __init__(
        self,
        lookup: Lookup,
        connection: Connection,
        topic: str,
        start: MessageId | None,
        *,
        permits: int,
        subscription: str,
    ) -> None:
        self.topic = topic
        self._lookup = lookup
        self._connection = connection
        self._next = None if start is None else MessageId(start.ledger, start.entry)
        self._permits = permits
        self._subscription = subscription
        self._last: MessageId | None = None  # the last entry to read; None: all
        self._closed = False
        self._changed = Monitor()
        # Under the condition:
        self._id = next(lookup.consumer_ids)
        self._credit = 0  # permits that the broker still has
        self._expected = 0  # the maximum number of entries to come: each takes at least one permit
        self._queue: deque[Delivery] = deque()
        self._queued_bytes = 0
        self._is_out_of_step = False
        self._failure: EosError | None = None

    @property
    def next_id(self) -> MessageId | None:
        """The position after the last entry that was read; None: the topic's first."""
        return self._next

    @property
    def is_usable(self) -> bool:
        """Whether it can still read: not failed and not closed."""
        with self._changed:
            return self._failure is None and self._connection.is_alive

    def open(self) -> None:
        """Subscribe, without a durable cursor.

        Raises:
            TopicNotFound: the topic does not exist.
            EosError: the broker refuses, or does not answer.
        """
        subscribe(
            self._connection,
            self,
            subscribing(self.topic, self._subscription, self._id, start=self._next),
            timeout_s=self._lookup.timeout_s,
            doing=f"Opening a reader on {self.topic}",
        )

    def read(self, deadline: float) -> Iterator[Entry]:
        """Yield entries as they become readable, from the last position on.

        It ends at ``deadline``, by ``time.monotonic``, and not earlier: a pause does not mean that
        no more entries will become readable.

        Raises:
            ConnectionLost: the connection is lost, or the broker closed the reader.
            ProtocolError: an entry is malformed.
            Fatal: the reader is closed.
        """
        self._last = None
        yield from self._read(deadline)

    def read_to(self, last: MessageId, deadline: float) -> Iterator[Entry]:
        """``read``, but the broker may send no entries after ``last`` in the same ledger.

        ``last`` must be stored. The caller must stop there.

        Raises:
            EosError: as ``read``.
        """
        self._last = last
        yield from self._read(deadline)

    def _read(self, deadline: float) -> Iterator[Entry]:
        while (delivery := self._take(deadline)) is not None:
            try:
                entry = Entry.of(delivery)
            except ProtocolError as error:
                self._end(error)  # to continue would lose it silently
                raise
            with self._changed:
                # Permits count messages: an entry of many uses up as many.
                self._credit -= entry.num_messages
                # The broker subtracts the number of messages that an entry claims: a negative one
                # adds permits, and enough of them overflow, so that nothing comes (measured).
                self._is_out_of_step |= (entry.metadata.num_messages_in_batch or 1) < 0
            # With a start past its end the broker delivers the whole topic again (measured).
            at = MessageId(entry.id.ledger, entry.id.entry)
            if self._next is None or at >= self._next:
                self._next = MessageId(at.ledger, at.entry + 1)
                yield entry

    def _take(self, deadline: float) -> Delivery | None:
        self._permit()
        while (left_s := deadline - time.monotonic()) > 0:
            with self._changed:
                if self._queue:
                    delivery = self._queue.popleft()
                    self._queued_bytes -= len(delivery.body)
                    return delivery
                if self._failure is not None:
                    raise copy.copy(self._failure)
                is_out_of_step = self._is_out_of_step
                if not is_out_of_step:
                    self._changed.wait(min(left_s, _LONGEST_WAIT_S))
            if is_out_of_step:
                self._open_again()
                self._permit()
        return None

    def _permit(self) -> None:
        """Grant permits, once the broker has at most half of the wanted ones."""
        wanted, at, last = self._permits, self._next, self._last
        if at is not None and last is not None and at.ledger == last.ledger:
            # No more than the entries left: what follows them would come to an idle reader.
            wanted = min(wanted, last.entry - at.entry + 1)
        with self._changed:
            missing = wanted - self._credit
            if missing <= 0 or missing < wanted / 2:
                return
            missing = min(missing, MOST_PERMITS)
            self._credit += missing
            self._expected = self._credit - len(self._queue)
        self._connection.notify(lambda _: commands.Flow(consumer_id=self._id, permits=missing))

    def _open_again(self) -> None:
        """Subscribe again after the last read entry: dropped entries come again, fewer at once."""
        unsubscribe(self._connection, self._id)
        # Under another name, as the old subscription may not be closed yet.
        self._subscription = new_subscription(self._lookup.rules)
        with self._changed:
            self._id = next(self._lookup.consumer_ids)  # deliveries to the old id are dropped
            self._is_out_of_step = False
            self._credit = self._expected = 0
        try:
            self.open()
        except BaseException:  # Ctrl-C as well: otherwise reads would wait in vain
            self._end(ConnectionLost(f"The reader on {self.topic} could not subscribe again."))
            raise

    def acknowledge(self) -> None:
        """Acknowledge the last read entry, without waiting for an answer."""
        # Otherwise the subscription would look stuck to an operator.
        if self._next is not None and self._next.entry:
            last = MessageIdData.of_entry(MessageId(self._next.ledger, self._next.entry - 1))
            kind = commands.AckType.CUMULATIVE
            self._connection.notify(
                lambda _: commands.Ack(consumer_id=self._id, ack_type=kind, message_ids=(last,))
            )

    def close(self) -> None:
        """Close it, without waiting for the broker's answer. May be called twice."""
        if not self._closed:
            self._closed = True
            self._end(Fatal(f"The reader on {self.topic} is closed."))
            unsubscribe(self._connection, self._id)

    def _end(self, reason: EosError) -> None:
        with self._changed:
            self._queue.clear()
            self._queued_bytes = 0
            self._failure = reason
            self._changed.notify_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- ConsumerListener: called by the connection's reading thread ------------------------

    def on_delivery(self, delivery: Delivery) -> None:
        """Queue the entry until it is read."""
        with self._changed:
            is_late = delivery.command.consumer_id != self._id
            if is_late or self._is_out_of_step or self._failure is not None:
                return
            if self._expected <= 0:
                self._is_out_of_step = True  # it may have skipped entries before this one
            elif self._queue and self._queued_bytes + len(delivery.body) > MAX_QUEUED_BYTES:
                self._is_out_of_step = True
                self._permits = max(1, len(self._queue) // 2)
            else:
                self._expected -= 1
                self._queue.append(delivery)
                self._queued_bytes += len(delivery.body)
            self._changed.notify_all()

    def on_closed(self, reason: EosError) -> None:
        """The broker closed the reader, or the connection ended; queued entries can be read."""
        with self._changed:
            self._failure = self._failure or reason
            self._changed.notify_all()


def entries_before(lookup: Lookup, topic: str, chunk: Entry) -> Iterator[Iterator[Entry]]:
    """Yield the entries of an exact topic before ``chunk``, for a reader that began in the middle
    of a message: those of the last second of publish times, then those of the last minute.

    Raises:
        EosError: they can't be read.
    """
    with closing(TopicBounds(lookup, topic)) as bounds:
        first = bounds.bounds().first
        for slack_ms in _SLACKS_MS:
            start = bounds.place_at(max(0, chunk.metadata.publish_time - slack_ms))
            start = max(first, min(start, chunk.id.place))
            yield _between(lookup, topic, MessageId(*start), chunk.id)
            if start == first:
                return


def _between(lookup: Lookup, topic: str, start: MessageId, end: MessageId) -> Iterator[Entry]:
    reader = EntryReader(
        lookup,
        lookup.broker_of(topic),
        topic,
        start,
        permits=PERMITS,
        subscription=new_subscription(lookup.rules),
    )
    with reader:
        reader.open()
        before = None
        # Without a limit of time in all: a busy topic has much in a minute.
        while reader.next_id != before or before is None:
            before = reader.next_id
            for entry in reader.read(time.monotonic() + lookup.timeout_s):
                if entry.id.place >= end.place:
                    return
                yield entry
        # `end` is readable: it was just read.
        raise RequestTimeout(f"Reading {topic}: nothing came for {lookup.timeout_s:g} s.")
