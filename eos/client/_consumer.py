"""A consumer on one exact topic: receives and acknowledges messages of a durable subscription."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any

from eos.client._acks import (
    AckTracker,
    TransactionAcks,
    UnackedEntry,
    send_ack,
)
from eos.client._lookup import Lookup
from eos.client._producer import Producer
from eos.client._receiver import Receiver
from eos.client._subscriptions import ConsumerOptions, ReceivedMessage
from eos.client._timer import Timer
from eos.client._transaction import Transaction, poisoning
from eos.errors import ConfigurationError, ConnectionLost, EosError, Fatal, InputError
from eos.ids import EntryPlace, MessageId, TopicName
from eos.waiting import Monitor
from eos.wire import commands
from eos.wire.commands import AckType
from eos.wire.encryption import Decryptor
from eos.wire.opened_entries import EntryOpener

logger = logging.getLogger(__name__)

Acknowledged = ReceivedMessage | MessageId


@dataclass
class Letters:
    """A topic to which a consumer moves messages; it is created with the first one."""

    topic: str
    _open: Callable[[str], Producer]
    _producer: Producer | None = None
    _is_closed: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def open(self) -> Producer:
        """Create the topic, if it does not exist."""
        with self._lock:  # else another thread could close them meanwhile, or open a second one
            if self._is_closed:
                raise Fatal(f"The consumer that moves messages to {self.topic} is closed.")
            if self._producer is not None and not self._producer.is_usable:
                self._close_producer()  # its topic has moved
            self._producer = self._producer or self._open(self.topic)
            return self._producer

    def send(
        self,
        message: ReceivedMessage,
        subscription: str,
        txn: Transaction,
        own: Mapping[str, str] = MappingProxyType({}),
        deliver_at_ms: int | None = None,
    ) -> None:
        """Send a copy, with the properties ``own``, those of Java's dead letters, and as
        ``ENCRYPTION_CONTEXT`` the message's ``encryption_context``, if it has one."""
        # As in Java, the topic without its partition.
        topic = str(TopicName.parse(message.topic).base)
        first = {"REAL_TOPIC": topic, "ORIGIN_MESSAGE_ID": str(message.id)}
        known = {"REAL_SUBSCRIPTION": subscription, **own}
        if message.encryption_context is not None:
            known["ENCRYPTION_CONTEXT"] = message.encryption_context
        self.open().send(
            message.value,
            txn=txn,
            key=message.key,
            event_time_ms=message.event_time_ms,
            deliver_at_ms=deliver_at_ms,
            properties={**first, **message.properties, **known},
        )

    def close(self) -> None:
        """Close the producer, and open no other one. May be called twice."""
        with self._lock:
            self._is_closed = True
            self._close_producer()

    def _close_producer(self) -> None:
        # Its messages are in transactions that have ended.
        if self._producer is not None:
            with contextlib.suppress(EosError):
                self._producer.close()
            self._producer = None


class Consumer(Receiver):
    """Made by ``PulsarClient.consumer``. One thread at a time may receive; any may acknowledge.

    If the topic moves or the connection is lost, ``receive`` subscribes again, and unacknowledged
    messages are delivered again: to acknowledge old copies is an error then, and poisons the
    transaction. After ``redeliver`` or an aborted transaction, a consumer with exclusive use of
    its subscription receives all unacknowledged messages again.
    """

    letters: Letters
    begin: Callable[[], Transaction]

    def _give_up(self, messages: list[ReceivedMessage]) -> None:
        try:
            with self.begin() as txn:
                for message in messages:
                    self.letters.send(message, self.subscription, txn)
                self.acknowledge(messages, txn=txn)
        except InputError as error:
            # With the properties of a dead letter it is too large.
            logger.warning(
                "%s of %s is not moved to %s, but received again: %s",
                *(messages[0].id, self.topic, self.letters.topic, error),
            )
            with self._changed:
                self._ready.extend(messages)
        except BaseException:
            self.redeliver(messages)  # they are in neither topic otherwise
            raise

    def close(self) -> None:
        """Close it; unacknowledged messages go to other consumers. May be called twice."""
        super().close()
        self.letters.close()

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
        if not self._options.is_ordered:
            with poisoning(txn):
                raise ConfigurationError(
                    f"A subscription of type {self._options.type} has no order: "
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

    def negative_acknowledge(self, messages: Acknowledged | Iterable[Acknowledged]) -> None:
        """Request redelivery of ``messages`` after ``nack_delay_s``, unless acknowledged then.

        Each further redelivery takes twice as long, up to ``nack_max_delay_s``. The broker counts
        redeliveries of ``shared`` and ``key_shared`` consumers only.
        """
        if isinstance(messages, ReceivedMessage | MessageId):
            messages = [messages]
        by_delay: dict[float, list[UnackedEntry]] = {}
        with self._changed:
            for one in messages:
                count = one.redelivery_count if isinstance(one, ReceivedMessage) else 0
                entries = self._tracker.find([_id_of(one).place])
                by_delay.setdefault(self._options.nack_delay_of_s(count), []).extend(entries)
        # Not the broker's own delay: it has none, a consumer keeps the message meanwhile.
        for delay_s, entries in by_delay.items():
            self._timer.call_after(delay_s, partial(self._redeliver_again, entries), self)

    def _redeliver_again(self, entries: Sequence[UnackedEntry]) -> None:
        with self._changed:
            # Of a later delivery the place is the same, but not the entry.
            again = [one.place for one in entries if self._tracker.is_current(one)]
        if again:
            self._redeliver_places(again)

    def seek(self, to: MessageId | int) -> None:
        """Move the subscription to a message, or to a publish time (milliseconds since 1970).

        The next message is that one, or the first one that was published then or later; other
        consumers of the subscription begin with the first message of its batch. Earlier copies
        can't be acknowledged any more. Of a message in chunks the id is that of its last chunk;
        once it was acknowledged, seek to its publish time.

        Raises:
            BrokerNotReady: other consumers of the subscription are in the way.
            EosError: the broker refuses, or does not answer.
        """
        doing = f"Seeking {to} in {self.subscription} of {self.topic}"
        with self._sending:
            with self._changed:
                connection, consumer_id = self._connection, self._id
                where = _place_to_seek(to, self._tracker)
            if connection is None:
                raise ConnectionLost(f"{doing}: the consumer has lost its connection.")
            connection.request(
                lambda request_id: commands.Seek(
                    consumer_id=consumer_id, request_id=request_id, **where
                ),
                commands.Success,
                timeout_s=self._timeout_s,
                doing=doing,
            )
            # The broker closes it, as all consumers of the subscription: what is queued here was
            # before. The next ``receive`` subscribes again.
            with self._changed:
                if self._id == consumer_id:  # else it has subscribed again already
                    self._lose()
                    self._tracker.sought = to if isinstance(to, MessageId) else None
            connection.listeners.remove_consumer(consumer_id)

    def _redeliver_places(self, places: Iterable[EntryPlace]) -> None:
        with self._changed:
            connection, again = self._connection, self._tracker.with_chunks(places)
            is_ordered = self._options.is_ordered
            self._ready = deque(
                one for one in self._ready if not is_ordered and one.id.place not in again
            )
            if is_ordered:
                self._epoch += 1
                self._queue.mark_stale()
                self._tracker.begin_again()
                self._opener = EntryOpener(self._decryptor)
            self._tracker.remember(again)
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


@dataclass(frozen=True)
class ConsumerFactory:
    """Opens the consumers of one client."""

    lookup: Lookup
    timer: Timer
    decryptor: Decryptor | None
    open_producer: Callable[[str], Producer]
    subscribe_durably: Callable[[str, str], None]
    begin: Callable[[], Transaction]

    def open(
        self,
        topic: str,
        subscription: str,
        options: ConsumerOptions,
        changed: Monitor | None = None,  # shared by several consumers
    ) -> Consumer:
        """Open one; errors as of ``PulsarClient.consumer``."""
        if not subscription:
            raise ConfigurationError("A subscription needs a name.")
        name = str(TopicName.parse(topic))
        consumer = Consumer(
            *(self.lookup, name, subscription, options, self.timer, self.decryptor, changed)
        )
        dead = options.dead_letter_topic or f"{name}-{subscription}-DLQ"
        consumer.letters = self.letters(dead, subscription)
        consumer.begin = self.begin
        consumer.open()
        return consumer

    def letters(self, topic: str, subscription: str | None) -> Letters:
        """Return the way to move messages to ``topic``, which ``subscription`` keeps there; None:
        the caller subscribes itself."""
        return Letters(topic, partial(self._open_kept, subscription))

    def _open_kept(self, subscription: str | None, topic: str) -> Producer:
        producer = self.open_producer(topic)  # creates the topic
        if subscription is None:
            return producer
        try:
            # Brokers delete messages that no subscription keeps, and, by default, topics without
            # one as soon as their last producer is gone.
            name = TopicName.parse(topic)
            for partition in name.partitions(self.lookup.partition_count(name)):
                self.subscribe_durably(str(partition), subscription)
        except BaseException:
            producer.close()
            raise
        return producer


def refuse_encrypted(messages: Iterable[ReceivedMessage]) -> None:
    """Raise InputError if one of these messages could not be decrypted."""
    for one in messages:
        if one.encryption_context is not None:
            raise InputError(
                f"{one.id} of {one.topic} is encrypted, and can't be retried later.",
                hint="Let it come again with negative_acknowledge.",
            )


def _place_to_seek(to: MessageId | int, tracker: AckTracker) -> dict[str, Any]:
    """Return the fields of a SEEK to a message, or to a publish time.

    Raises:
        ConfigurationError: ``to`` is neither.
    """
    if isinstance(to, MessageId) and min(to.place) >= 0:
        # A message in chunks is complete only from its first one on.
        (first, *_) = tracker.with_chunks([to.place])
        at = commands.MessageIdData(ledger=first[0], entry=first[1], batch_index=to.batch_index)
        return {"message_id": at}
    if isinstance(to, int) and not isinstance(to, bool) and 0 <= to < 2**63:
        return {"message_publish_time": to}
    raise ConfigurationError(
        f"seek({to!r}): expected a MessageId of a message, or milliseconds since 1970."
    )


def _id_of(one: Acknowledged) -> MessageId:
    return one.id if isinstance(one, ReceivedMessage) else one
