"""A consumer on one exact topic: receives and acknowledges messages of a durable subscription."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from typing import Final, Self

from eos._waiting import Monitor
from eos.client._acks import (
    AckTracker,
    ReceivedMessage,
    TransactionAcks,
    ack_of,
    is_never_read,
    messages_of,
    send_ack,
    wanted_of,
)
from eos.client._lookup import Lookup
from eos.client._subscriptions import (
    ReceiveQueue,
    closing,
    place_of,
    subscribe,
    subscribing,
    unsubscribe,
)
from eos.client._transaction import Transaction, poisoning
from eos.errors import ConfigurationError, EosError, Fatal, ProtocolError
from eos.ids import EntryPlace, MessageId
from eos.transport.connection import Connection
from eos.wire import commands
from eos.wire.batch import Entry
from eos.wire.commands import AckType, SubscriptionType
from eos.wire.encryption import Decryptor
from eos.wire.frames import Delivery
from eos.wire.opened_entries import EntryOpener, NoMessage

BATCH_BYTES: Final = 32 * 1024 * 1024  # of ``receive_batch``, plus the rest of an entry

_ORDERED: Final = (SubscriptionType.EXCLUSIVE, SubscriptionType.FAILOVER)
Acknowledged = ReceivedMessage | MessageId


class Consumer:
    """Made by ``PulsarClient.consumer``. One thread at a time may receive; any may acknowledge.

    If the topic moves or the connection is lost, ``receive`` subscribes again, and unacknowledged
    messages are delivered again: to acknowledge old copies is an error then, and poisons the
    transaction. After ``redeliver`` or an aborted transaction, a consumer with exclusive use of
    its subscription receives all unacknowledged messages again.
    """

    def __init__(
        self,
        lookup: Lookup,
        topic: str,
        subscription: str,
        kind: SubscriptionType,
        start: commands.InitialPosition,
        decryptor: Decryptor | None = None,
    ) -> None:
        self.topic = topic
        self.subscription = subscription
        self._lookup = lookup
        self._kind = kind
        self._start = start
        self._opener = EntryOpener(decryptor)
        self._id = -1
        self._timeout_s = lookup.timeout_s
        self._sending = threading.Lock()
        self._transactions: dict[Transaction, TransactionAcks] = {}
        self._changed = Monitor()
        # Under the condition:
        self._connection: Connection | None = None
        self._queue = ReceiveQueue()
        self._ready: deque[ReceivedMessage] = deque()
        self._epoch = 0
        self._failure: EosError | None = None
        self._tracker = AckTracker()
        self._closed = False

    def open(self) -> None:
        """Subscribe, and let the broker deliver; errors as of ``PulsarClient.consumer``."""
        connection = self._lookup.broker_of(self.topic)
        with self._changed:
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
                    kind=self._kind,
                    durable=True,
                    at_end=self._start is commands.InitialPosition.LATEST,
                    epoch=self._epoch if self._kind in _ORDERED else None,
                ),
                timeout_s=self._timeout_s,
                doing=f"Subscribing {self.subscription} to {self.topic}",
            )
        except BaseException:
            self._lose()
            raise
        with self._changed:
            self._permit()

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
            with self._changed:
                if self._closed:
                    raise Fatal(f"The consumer of {self.subscription} on {self.topic} is closed.")
                if self._ready:
                    return self._ready.popleft()
                if self._failure is not None:
                    failure, self._failure = self._failure, None
                    raise failure
                is_lost = self._connection is None
                if not is_lost and not self._take() and not self._ready:
                    left_s = deadline - time.monotonic()
                    if left_s <= 0:
                        return None
                    self._changed.wait(left_s)
            if is_lost:
                self._open_again()

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
        with self._changed:
            while messages and self._connection is not None:
                messages += self._ready  # the rest of an entry
                size += sum(one.size for one in self._ready)
                self._ready.clear()
                try:
                    # By bytes too: a few KB may decode to a thousand large messages.
                    if len(messages) >= max_messages or size > BATCH_BYTES or not self._take():
                        break
                except ProtocolError as error:  # of the next entry: return these messages first
                    self._failure = error
                    break
        return messages

    def _take(self) -> bool:
        """Decode the next queued entry; return False if there is none."""
        if not self._queue:
            return False
        delivery, is_stale = self._queue.take()
        place = place_of(delivery)
        if not is_stale:
            self._tracker.add(place, (-1,))  # an unreadable entry can be acknowledged
        try:
            entry = Entry.of(delivery)
        except ProtocolError:
            # A damaged entry has used permits too: without new ones, the broker would stop.
            self._permit(spent=delivery.claimed_messages())
            raise
        wanted = wanted_of(entry, delivery)
        self._permit(spent=len(wanted))
        if not is_stale:
            self._open(entry, delivery, wanted)
        return True

    def _open(self, stored: Entry, delivery: Delivery, wanted: Collection[int]) -> None:
        found = self._opener.open(stored)
        if isinstance(found, NoMessage):
            if is_never_read(found, stored):
                self._skip(stored)
            else:
                self._tracker.hold(stored.id.place)
            return
        messages = messages_of(found.entry, delivery, wanted, found.context)
        indexes = [message.id.batch_index for message in messages]
        self._tracker.add(stored.id.place, indexes, found.entry.num_messages, found.chunks)
        self._ready.extend(messages)

    def _skip(self, entry: Entry) -> None:
        self._tracker.forget([entry.id.place])
        if (connection := self._connection) is not None:
            connection.notify(lambda _: ack_of(self._id, entry.id))

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

    # --- acknowledging ----------------------------------------------------------------------

    def acknowledge(
        self, messages: Acknowledged | Sequence[Acknowledged], txn: Transaction | None = None
    ) -> None:
        """Acknowledge ``messages``; with ``txn``, when it is committed.

        The broker learns of an entry's acknowledgement when its last message is acknowledged.

        Raises:
            Retriable: a message was acknowledged before, or will be delivered again.
            InputError: messages of one entry are acknowledged in different transactions.
            EosError: the broker refuses, or does not answer. ``txn`` is poisoned.
        """
        if isinstance(messages, ReceivedMessage | MessageId):
            messages = [messages]
        self._acknowledge([_id_of(one) for one in messages], AckType.INDIVIDUAL, txn)

    def acknowledge_cumulative(self, message: Acknowledged, txn: Transaction | None = None) -> None:
        """Acknowledge ``message`` and all earlier ones; otherwise as ``acknowledge``.

        Raises:
            ConfigurationError: several consumers may share the subscription.
        """
        if self._kind not in _ORDERED:
            raise ConfigurationError(
                f"A subscription of type {self._kind.name.lower()} has no order: "
                "acknowledge its messages individually."
            )
        self._acknowledge([_id_of(message)], AckType.CUMULATIVE, txn)

    def _acknowledge(self, ids: list[MessageId], how: AckType, txn: Transaction | None) -> None:
        owner = None if txn is None else txn.id
        with self._sending, poisoning(txn):
            acked = None if txn is None else self._enlist(txn)
            with self._changed:
                if how is AckType.CUMULATIVE:
                    steps = self._tracker.steps_up_to(ids[0], owner)
                    if self._tracker.has_parts_before(ids[0].place):
                        how = AckType.INDIVIDUAL  # else these parts would be acknowledged, too
                else:
                    steps = self._tracker.steps(ids, owner)
                connection = self._connection
            whole = sorted((one.entry for one in steps if one.is_last), key=lambda one: one.place)
            if whole:
                named = whole[-1:] if how is AckType.CUMULATIVE else whole
                try:
                    send_ack(
                        *(connection, self._id, named, how, txn),
                        timeout_s=self._timeout_s,
                        doing=f"Acknowledging in {self.subscription} of {self.topic}",
                    )
                except EosError as error:
                    if acked is not None:
                        acked.failure = error
                    raise
            with self._changed:
                self._tracker.apply(steps, owner)
            if acked is not None:
                acked.record(steps)

    def _enlist(self, txn: Transaction) -> TransactionAcks:
        acked = self._transactions.get(txn)
        if acked is None:
            acked = TransactionAcks(
                txn, self.topic, self._sending, self._redeliver_places, self._close_failed
            )
            txn.enlist_subscription(acked, self.subscription)
            self._transactions = {  # forget ended ones
                known: one for known, one in self._transactions.items() if not one.has_ended
            }
            self._transactions[txn] = acked
        txn.check()
        return acked

    # --- redelivery and closing -------------------------------------------------------------

    def redeliver(self, messages: Iterable[Acknowledged] | None = None) -> None:
        """Request redelivery of ``messages``, or of all received ones, unless acknowledged."""
        with self._changed:
            places = self._tracker.places if messages is None else None
        self._redeliver_places(places or {_id_of(one).place for one in messages or ()})

    def _redeliver_places(self, places: Iterable[EntryPlace]) -> None:
        with self._changed:
            connection, again = self._connection, self._tracker.with_chunks(places)
            is_ordered = self._kind in _ORDERED
            self._ready = deque(
                one for one in self._ready if not is_ordered and one.id.place not in again
            )
            if is_ordered:
                self._epoch += 1
                self._queue.mark_stale()
                self._tracker.clear()
                self._opener.clear()
            self._tracker.forget(again)
            epoch = self._epoch if is_ordered else None
        if connection is not None and (again or is_ordered):
            whole = () if is_ordered else again
            ids = tuple(commands.MessageIdData(ledger=place[0], entry=place[1]) for place in whole)
            connection.notify(
                lambda _: commands.RedeliverUnacknowledged(
                    consumer_id=self._id, message_ids=ids, consumer_epoch=epoch
                )
            )

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
            self._tracker.clear()
            self._opener.clear()
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
            queue.put(delivery, is_old=is_old, is_ordered=self._kind in _ORDERED)
            if queue.is_beyond_permits:
                self._end(ProtocolError(f"The broker sent more of {self.topic} than permitted."))
            elif queue.is_overfull:
                self._end(None)
            self._changed.notify_all()

    def _end(self, failure: EosError | None) -> None:
        """Drop all queued entries and close: after the next SUBSCRIBE they come again."""
        connection = self._connection
        self._lose()
        self._failure = failure
        if connection is not None:
            unsubscribe(connection, self._id)

    def on_closed(self, reason: EosError) -> None:  # noqa: ARG002
        """The broker closed the consumer, or the connection ended."""
        self._lose()


def _id_of(one: Acknowledged) -> MessageId:
    return one.id if isinstance(one, ReceivedMessage) else one
