"""Receives the messages of a durable subscription on one exact topic."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from typing import Final, Self

from eos.client._acks import AckTracker, TransactionAcks, ack_of
from eos.client._lookup import Lookup
from eos.client._subscriptions import (
    ConsumerOptions,
    ReceivedMessage,
    ReceiveQueue,
    closing,
    messages_of,
    place_of,
    subscribe,
    subscribing,
    unsubscribe,
    wanted_of,
)
from eos.client._timer import Timer
from eos.client._transaction import Transaction
from eos.errors import EosError, Fatal, ProtocolError
from eos.ids import EntryPlace
from eos.transport.connection import Connection
from eos.waiting import Monitor
from eos.wire import commands
from eos.wire.batch import Entry
from eos.wire.encryption import Decryptor
from eos.wire.frames import Delivery
from eos.wire.opened_entries import EntryOpener, NoMessage, ReadableEntry

BATCH_BYTES: Final = 32 * 1024 * 1024  # of ``receive_batch``, plus the rest of an entry
_MISSING_MS: Final = 60_000  # Java's expireTimeOfIncompleteChunkedMessage


def is_never_read(reason: NoMessage, entry: Entry) -> bool:
    """Whether an entry without a message may be acknowledged, as Java's consumers do."""
    age_ms = time.time_ns() // 1_000_000 - entry.metadata.publish_time
    # Another delivery may begin with its first part.
    is_old = reason is NoMessage.MISSING and age_ms > _MISSING_MS
    return reason is NoMessage.LEFT_OUT or is_old


class Receiver:
    """The receiving part of a ``Consumer``."""

    def __init__(
        self,
        lookup: Lookup,
        topic: str,
        subscription: str,
        options: ConsumerOptions,
        timer: Timer,
        decryptor: Decryptor | None = None,
        changed: Monitor | None = None,
    ) -> None:
        self.topic = topic
        self.subscription = subscription
        self._lookup = lookup
        self._options = options
        self._timer = timer
        self._decryptor = decryptor
        self._opener = EntryOpener(decryptor)
        self._id = -1
        self._timeout_s = lookup.timeout_s
        self._sending = threading.Lock()
        self._transactions: dict[Transaction, TransactionAcks] = {}
        self._changed = changed or Monitor()
        # Under the condition:
        self._connection: Connection | None = None
        self._queue = ReceiveQueue()
        self._ready: deque[ReceivedMessage] = deque()
        self._dead: deque[list[ReceivedMessage]] = deque()  # delivered too often, by entry
        self._epoch = 0
        self._failure: EosError | None = None
        self._tracker = AckTracker()
        self._closed = False

    @property
    def is_exclusive(self) -> bool:
        """Whether its subscription has no other consumer."""
        return self._options.is_exclusive

    @property
    def is_ready(self) -> bool:
        """Whether ``receive`` has anything to do; under the lock of several consumers."""
        waiting = self._queue or self._ready or self._dead or self._failure
        return bool(waiting) or self._connection is None

    def open(self) -> None:
        """Subscribe, and let the broker deliver; errors as of ``PulsarClient.consumer``."""
        connection, options = self._lookup.broker_of(self.topic), self._options
        with self._changed:
            self._refuse_closed()
            # Never reuse an id: deliveries to an old one may still arrive, and are dropped.
            self._id = next(self._lookup.consumer_ids)
            self._connection = connection
            self._queue = ReceiveQueue(self._queue.entry_bytes_max)
        try:
            subscribe(
                connection,
                self,
                subscribing(
                    self.topic,
                    self.subscription,
                    self._id,
                    kind=options.kind,
                    durable=True,
                    at_end=options.is_at_end,
                    epoch=self._epoch if options.is_ordered else None,
                    priority_level=options.priority_level,
                    replicate_state=options.replicate_subscription_state or None,
                ),
                timeout_s=self._timeout_s,
                doing=f"Subscribing {self.subscription} to {self.topic}",
            )
        except BaseException:
            self._lose()
            raise
        self._begin(connection)

    def _begin(self, connection: Connection) -> None:
        with self._changed:
            if self._connection is None:  # closed meanwhile, maybe before it was subscribed
                unsubscribe(connection, self._id)
            self._refuse_closed()
            self._permit()

    def _refuse_closed(self) -> None:
        if self._closed:
            raise Fatal(f"The consumer of {self.subscription} on {self.topic} is closed.")

    # --- receiving --------------------------------------------------------------------------

    def receive(self, timeout_s: float) -> ReceivedMessage | None:
        """Return the next message; None if none comes within ``timeout_s``.

        To subscribe again may additionally take the client's ``timeout_s``.

        Raises:
            ProtocolError: an entry can't be read: the next call continues after it, and
                ``acknowledge`` with its id skips it permanently. Or the broker exceeded its
                permits: the next call subscribes again.
            EosError: the topic can't be read any more.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            while self._dead:
                self._give_up(self._dead.popleft())
            with self._changed:
                self._refuse_closed()
                if self._ready:
                    return self._ready.popleft()
                if self._failure is not None:
                    failure, self._failure = self._failure, None
                    raise failure
                is_lost, has_entry = self._connection is None, bool(self._queue)
                if not (is_lost or has_entry):
                    left_s = deadline - time.monotonic()
                    if left_s <= 0:
                        return None
                    self._changed.wait(left_s)
            if is_lost:
                self._open_again()
            elif has_entry:
                self._take()

    def receive_batch(self, max_messages: int, timeout_s: float) -> list[ReceivedMessage]:
        """Wait for a message, and return up to ``max_messages`` or 32 MiB available ones; or [].

        The rest of the last message's entry is always included, so that the whole entry can be
        acknowledged in one transaction.

        Raises:
            EosError: as ``receive``, after all earlier messages were returned.
        """
        first = self.receive(timeout_s)
        messages = [] if first is None else [first]
        size = sum(one.size for one in messages)
        while messages:
            with self._changed:
                messages += self._ready  # the rest of an entry
                size += sum(one.size for one in self._ready)
                self._ready.clear()
                # By bytes too: a few KB may decode to a thousand large messages.
                if len(messages) >= max_messages or size > BATCH_BYTES or not self._queue:
                    break
            try:
                self._take()
            except ProtocolError as error:  # of the next entry: return these messages first
                self._failure = error
                break
        return messages

    def _take(self) -> None:
        """Read the next queued entry, if there is one. Not under the lock: it may fetch a key."""
        with self._changed:
            if not self._queue:
                return
            (delivery, is_stale), opener = self._queue.take(), self._opener
            # An unreadable entry can be acknowledged.
            unread = None if is_stale else self._tracker.add_unread(place_of(delivery))
        try:
            entry = self._decoded(delivery)
            if unread is None:
                return
            found = opener.open(entry)
        except EosError:
            raise
        except BaseException:  # Ctrl-C: what is behind it would come, and then it
            with self._changed:
                self._end(None)
            raise
        with self._changed:
            # Else it comes again: it was requested meanwhile, or the connection was lost.
            if self._tracker.is_current(unread):
                self._tracker.dropped |= opener.take_dropped()
                self._skip(*opener.take_obsolete(), *self._tracker.expired_parts(entry))
                self._keep(entry, delivery, found)
                self._tracker.unreadable.discard(unread.place)

    def _decoded(self, delivery: Delivery) -> Entry:
        # A damaged entry has used permits too: without new ones, the broker would stop.
        spent = delivery.claimed_messages()
        try:
            entry = Entry.of(delivery)
            spent = len(wanted_of(entry, delivery))
        finally:
            with self._changed:
                self._permit(spent)
        return entry

    def _keep(self, stored: Entry, delivery: Delivery, found: ReadableEntry | NoMessage) -> None:
        wanted = wanted_of(stored, delivery)
        if isinstance(found, NoMessage):
            behind = self._tracker.is_behind_unread(stored.id.place)
            if is_never_read(found, stored) and not (found is NoMessage.MISSING and behind):
                self._skip(stored.id.place)
            else:
                self._tracker.hold(stored)
            return
        left = self._tracker.left(stored.id.place, wanted)
        if wanted and not left:  # others have acknowledged the rest
            self._skip(stored.id.place)
            return
        messages = messages_of(self.topic, found.entry, delivery, left, found.context)
        indexes = [message.id.batch_index for message in messages]
        self._tracker.add(stored.id.place, indexes, found.entry.num_messages, found.chunks)
        most = self._options.max_redeliveries
        if most is not None and delivery.command.redelivery_count > most:
            self._dead.append(messages)  # moved by ``receive``, which may wait
        else:
            self._ready.extend(messages)

    def _give_up(self, messages: list[ReceivedMessage]) -> None:
        raise NotImplementedError

    def _skip(self, *places: EntryPlace) -> None:
        """Acknowledge entries of which no message comes."""
        self._tracker.forget(places)
        if places and (connection := self._connection) is not None:
            connection.notify(lambda _: ack_of(self._id, places))

    def _permit(self, spent: int = 0) -> None:
        self._queue.spend(spent)
        connection = self._connection
        if connection is not None and (permits := self._queue.grant()):
            connection.notify(lambda _: commands.Flow(consumer_id=self._id, permits=permits))

    def _open_again(self) -> None:
        from eos.retry import attempts  # lazy: executors have no tenacity

        for attempt in attempts(self._timeout_s):
            with attempt:
                self.open()

    # --- closing ------------------------------------------------------------------------------

    def _close_failed(self, deadline: float) -> None:
        connection = self._connection
        if connection is not None:
            self._lose()
            connection.listeners.remove_consumer(self._id)
            with contextlib.suppress(EosError):
                connection.request(
                    closing(self._id),
                    commands.Success,
                    timeout_s=max(0.0, min(self._timeout_s, deadline - time.monotonic())),
                    doing=f"Closing the consumer of {self.subscription} on {self.topic}",
                )

    def close(self) -> None:
        """Close it; unacknowledged messages go to other consumers. May be called twice."""
        with self._changed:
            self._closed = True
        self._close_failed(time.monotonic() + self._timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _lose(self) -> None:
        with self._changed:
            self._connection = None
            self._queue = ReceiveQueue(self._queue.entry_bytes_max)
            self._ready.clear()
            self._dead.clear()
            self._tracker.clear()
            self._opener = EntryOpener(self._decryptor)  # the other one may be in use
            self._changed.notify_all()

    # --- ConsumerListener: called by the connection's reading thread ------------------------

    def on_delivery(self, delivery: Delivery) -> None:
        """Queue the entry."""
        with self._changed:
            command, queue = delivery.command, self._queue
            # What was under way to a closed consumer comes again: here it is no new delivery.
            if command.consumer_id != self._id or self._connection is None:
                return
            is_old = command.consumer_epoch is not None and command.consumer_epoch < self._epoch
            queue.put(delivery, is_old=is_old, is_ordered=self._options.is_ordered)
            if queue.is_beyond_permits:
                self._end(ProtocolError(f"The broker sent more of {self.topic} than permitted."))
            elif queue.is_overfull:
                self._end(None)
            self._changed.notify_all()

    def on_closed(self, reason: EosError) -> None:  # noqa: ARG002
        """The broker closed the consumer, or the connection ended."""
        with self._changed:
            self._end(None)

    def _end(self, failure: EosError | None) -> None:
        """Drop all queued entries and close: after the next SUBSCRIBE they come again."""
        connection = self._connection
        self._lose()
        self._failure = failure or self._failure
        if connection is not None:
            # Also after a notice: a late one is of an earlier connection.
            unsubscribe(connection, self._id)
