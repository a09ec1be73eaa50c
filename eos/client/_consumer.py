"""A consumer on one exact topic: messages of a durable subscription, and their acknowledgement."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import Final, Self

from eos._waiting import Monitor
from eos.client._ack_tracker import (
    AckStep,
    AckTracker,
    ReceivedMessage,
    messages_of,
    wanted_of,
)
from eos.client._lookup import Lookup
from eos.client._receive_queue import ReceiveQueue, place_of
from eos.client._subscriptions import closing, subscribe
from eos.client._transaction import Transaction, poisoning
from eos.client._transactional_acks import TransactionAcks, ack_of, ids_of, send_ack
from eos.errors import ConfigurationError, EosError, Fatal, ProtocolError
from eos.ids import EntryPlace, MessageId
from eos.transport.connection import Connection
from eos.wire import commands
from eos.wire.batch import Entry
from eos.wire.commands import AckType, SubscriptionType
from eos.wire.frames import Delivery

BATCH_BYTES: Final = 32 * 1024 * 1024
"""What ``receive_batch`` gives at once takes that and the rest of an entry, at most."""

_ORDERED: Final = (SubscriptionType.EXCLUSIVE, SubscriptionType.FAILOVER)
Acknowledged = ReceivedMessage | MessageId


class Consumer:
    """Made by ``PulsarClient.consumer``. One thread at a time receives; any may acknowledge.

    When its topic moves or its connection is lost it subscribes again by itself, at the next
    ``receive``. What was received before and is not acknowledged comes again then; its old copies
    can't be acknowledged any more, which is an error and poisons the transaction.

    After ``redeliver``, and after an aborted transaction, a consumer that has its subscription to
    itself gets everything again that is not acknowledged.
    """

    def __init__(
        self,
        lookup: Lookup,
        topic: str,
        subscription: str,
        kind: SubscriptionType,
        start: commands.InitialPosition,
        consumer_ids: Iterator[int],
        timeout_s: float,
    ) -> None:
        self.topic = topic
        self.subscription = subscription
        self._lookup = lookup
        self._kind = kind
        self._start = start
        self._consumer_ids = consumer_ids
        self._id = -1
        self._timeout_s = timeout_s
        self._sending = threading.Lock()
        self._transactions: dict[Transaction, TransactionAcks] = {}
        self._changed = Monitor()
        # Under the condition:
        self._connection: Connection | None = None
        self._queue = ReceiveQueue()
        self._ready: deque[ReceivedMessage] = deque()
        self._epoch = 0
        self._failure: EosError | None = None
        self._given = AckTracker()
        self._closed = False

    def open(self) -> None:
        """SUBSCRIBE, and let the broker deliver.

        Raises:
            TopicNotFound: there is no such topic.
            ConsumerBusy: another consumer has the subscription to itself.
            EosError: the broker refuses, or does not answer.
        """
        connection = self._lookup.broker_of(self.topic)
        with self._changed:
            # Never one that was used before: what is still under way to that one is dropped.
            self._id = next(self._consumer_ids)
            self._connection = connection
            self._queue = ReceiveQueue(self._queue.entry_bytes_max)
        try:
            connection.add_consumer(self._id, self)
            subscribe(
                connection,
                self._subscribe_command,
                timeout_s=self._timeout_s,
                doing=f"Subscribing {self.subscription} to {self.topic}",
            )
        except BaseException:
            connection.remove_consumer(self._id)
            self._lose()
            raise
        with self._changed:
            self._permit()

    def _subscribe_command(self, request_id: int) -> commands.Subscribe:
        is_keyed = self._kind is SubscriptionType.KEY_SHARED
        meta = commands.KeySharedMeta(mode=commands.KeySharedMode.AUTO_SPLIT)
        return commands.Subscribe(
            topic=self.topic,
            subscription=self.subscription,
            subscription_type=self._kind,
            consumer_id=self._id,
            request_id=request_id,
            durable=True,
            initial_position=self._start,
            force_topic_creation=False,
            key_shared_meta=meta if is_keyed else None,
            consumer_epoch=self._epoch if self._kind in _ORDERED else None,
        )

    # --- receiving --------------------------------------------------------------------------

    def receive(self, timeout_s: float) -> ReceivedMessage | None:
        """The next message; None when none comes for ``timeout_s``.

        Subscribing again, where that is needed, may take the client's ``timeout_s`` besides.

        Raises:
            ProtocolError: an entry can't be read: the next call goes on behind it, and
                ``acknowledge`` with its id passes over it for good. Or the broker sent more than
                it may: the next call subscribes again.
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
        """Up to ``max_messages``, or 32 MiB, that are there once the first is; [] when none comes.

        The rest of the last one's entry is always given too, so that all of it can be acknowledged
        in one transaction.

        Raises:
            EosError: as ``receive``, once what came before it has been given.
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
                    if len(messages) >= max_messages or size > BATCH_BYTES or not self._take():
                        break
                except ProtocolError as error:  # of the next entry: these are given first
                    self._failure = error
                    break
        return messages

    def _take(self) -> bool:
        """Decode the next entry that waits; whether there was one."""
        if not self._queue:
            return False
        delivery, is_stale = self._queue.take()
        place = place_of(delivery)
        if not is_stale:
            self._given.add(place, (-1,))  # one that can't be read can be acknowledged
        try:
            entry = Entry.of(delivery)
        except ProtocolError:
            self._permit(spent=delivery.claimed_messages())
            raise
        wanted = wanted_of(entry, delivery)
        self._permit(spent=len(wanted))
        if not is_stale:
            messages = messages_of(entry, delivery, wanted)
            indexes = [message.id.batch_index for message in messages]
            self._given.add(place, indexes, entry.num_messages)
            self._ready.extend(messages)
        return True

    def _permit(self, spent: int = 0) -> None:
        self._queue.spend(spent)
        connection = self._connection
        if connection is not None and (permits := self._queue.grant()):
            connection.notify(lambda _: commands.Flow(consumer_id=self._id, permits=permits))

    def _open_again(self) -> None:
        from eos.retry import attempts  # late: executors have no tenacity

        for attempt in attempts(self._timeout_s):
            with attempt:
                self.open()

    # --- acknowledging ----------------------------------------------------------------------

    def acknowledge(
        self, messages: Acknowledged | Sequence[Acknowledged], txn: Transaction | None = None
    ) -> None:
        """Acknowledge; with ``txn`` it holds when that is committed. An entry's messages are
        acknowledged at the broker when the last of them is.

        Raises:
            Retriable: one of them was acknowledged before, or will be delivered again.
            InputError: an entry's messages are acknowledged in different transactions.
            EosError: the broker refuses, or does not answer. ``txn`` is poisoned.
        """
        if isinstance(messages, ReceivedMessage | MessageId):
            messages = [messages]
        ids = [one.id if isinstance(one, ReceivedMessage) else one for one in messages]
        self._acknowledge(ids, AckType.INDIVIDUAL, txn)

    def acknowledge_cumulative(self, message: Acknowledged, txn: Transaction | None = None) -> None:
        """Acknowledge ``message`` and all before it; otherwise as ``acknowledge``.

        Raises:
            ConfigurationError: several consumers share the subscription.
        """
        if self._kind not in _ORDERED:
            raise ConfigurationError(
                f"A subscription of the type {self._kind.name.lower()} has no order: "
                "acknowledge its messages one by one."
            )
        self._acknowledge([_id_of(message)], AckType.CUMULATIVE, txn)

    def _acknowledge(self, ids: list[MessageId], how: AckType, txn: Transaction | None) -> None:
        owner = None if txn is None else txn.id
        with self._sending, poisoning(txn):
            acked = None if txn is None else self._enlist(txn)
            with self._changed:
                if how is AckType.CUMULATIVE:
                    steps = self._given.steps_up_to(ids[0], owner)
                else:
                    steps = self._given.steps(ids, owner)
                connection = self._connection
            whole = sorted((one.entry for one in steps if one.is_last), key=lambda one: one.place)
            if whole:
                named = whole[-1:] if how is AckType.CUMULATIVE else whole
                try:
                    send_ack(
                        connection,
                        lambda request_id: ack_of(self._id, named, how, txn, request_id),
                        timeout_s=self._timeout_s,
                        doing=f"Acknowledging in {self.subscription} of {self.topic}",
                    )
                except EosError as error:
                    if acked is not None:
                        acked.failure = error
                    raise
            self._hold(steps, acked, txn)

    def _hold(
        self, steps: list[AckStep], acked: TransactionAcks | None, txn: Transaction | None
    ) -> None:
        with self._changed:
            self._given.take(steps, None if txn is None else txn.id)
        if acked is not None:
            acked.begun |= {one.entry.place for one in steps if one.entry.remaining}
            acked.begun -= {one.entry.place for one in steps if not one.entry.remaining}

    def _enlist(self, txn: Transaction) -> TransactionAcks:
        acked = self._transactions.get(txn)
        if acked is None:
            acked = TransactionAcks(
                txn, self.topic, self._sending, self._redeliver_places, self._close_failed
            )
            txn.enlist_subscription(acked, self.subscription)
            self._transactions = {  # those that have ended say so
                known: one for known, one in self._transactions.items() if not one.has_ended
            }
            self._transactions[txn] = acked
        txn.check()
        return acked

    # --- again, and the end -----------------------------------------------------------------

    def redeliver(self, messages: Iterable[Acknowledged] | None = None) -> None:
        """Have ``messages``, or all that was received, delivered again unless acknowledged.

        A consumer that has its subscription to itself gets all again in either case.
        """
        with self._changed:
            places = self._given.places if messages is None else None
        self._redeliver_places(places or {_id_of(one).place for one in messages or ()})

    def _redeliver_places(self, places: Iterable[EntryPlace]) -> None:
        with self._changed:
            connection, again = self._connection, sorted(places)
            is_ordered = self._kind in _ORDERED
            self._ready = deque(
                one for one in self._ready if not is_ordered and one.id.place not in again
            )
            if is_ordered:
                self._epoch += 1
                self._queue.all_come_again()
                self._given.clear()
            self._given.forget(again)
            epoch = self._epoch if is_ordered else None
        if connection is not None and (again or is_ordered):
            ids = () if is_ordered else ids_of(again)
            connection.notify(
                lambda _: commands.RedeliverUnacknowledged(
                    consumer_id=self._id, message_ids=ids, consumer_epoch=epoch
                )
            )

    def _close_failed(self, deadline: float) -> None:
        connection = self._connection
        if connection is not None:
            self._lose()
            connection.remove_consumer(self._id)
            with contextlib.suppress(EosError):
                connection.request(
                    closing(self._id),
                    commands.Success,
                    timeout_s=max(0.0, min(self._timeout_s, deadline - time.monotonic())),
                    doing=f"Closing the consumer of {self.subscription} on {self.topic}",
                )

    def close(self) -> None:
        """End it; what is not acknowledged goes to another consumer. Twice does nothing."""
        with self._changed:
            self._closed = True
        self._close_failed(time.monotonic() + self._timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _lose(self) -> None:
        with self._changed:
            self._connection = None
            self._queue = ReceiveQueue(self._queue.entry_bytes_max)
            self._ready.clear()
            self._given.clear()
            self._changed.notify_all()

    # --- ConsumerListener: called by the connection's reading thread ------------------------

    def on_delivery(self, delivery: Delivery) -> None:
        """Keep the entry until it is received."""
        with self._changed:
            command, queue = delivery.command, self._queue
            if command.consumer_id != self._id or self._connection is None:
                return
            is_old = command.consumer_epoch is not None and command.consumer_epoch < self._epoch
            queue.put(delivery, is_old=is_old, is_ordered=self._kind in _ORDERED)
            if queue.is_beyond_permits:
                self._end(ProtocolError(f"More of {self.topic} came than were asked for."))
            elif queue.is_overfull:
                self._end(None)
            self._changed.notify_all()

    def _end(self, failure: EosError | None) -> None:
        """Give up what waits; it comes again to the next one that subscribes."""
        connection = self._connection
        self._lose()
        self._failure = failure
        if connection is not None:
            connection.remove_consumer(self._id)
            connection.notify(closing(self._id))

    def on_closed(self, reason: EosError) -> None:  # noqa: ARG002
        """The consumer or its connection ended without our doing."""
        self._lose()


def _id_of(one: Acknowledged) -> MessageId:
    return one.id if isinstance(one, ReceivedMessage) else one
