"""Consumers that keep no entries: they move a durable subscription, or ask for positions."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, Self, TypeVar

from eos.client._lookup import Lookup
from eos.client._subscriptions import (
    MOST_PERMITS,
    closing,
    last_id_of,
    subscribe,
    subscribing,
    unsubscribe,
)
from eos.errors import ConnectionLost, EosError, NotAllowed, ProtocolError, broker_error
from eos.ids import EntryPlace, MessageId
from eos.transport.connection import Connection
from eos.waiting import Monitor
from eos.wire import commands
from eos.wire.batch import Entry
from eos.wire.frames import Delivery
from eos.wire.messages import WireMessage

_IS_DURABLE: Final = "Durable subscription with the same name already exists"
_ALREADY_MOVED: Final = "MarkDeletingMarkedPosition"

A = TypeVar("A", bound=WireMessage)


class PassiveConsumer:
    """One consumer of ``subscription`` on one exact topic. For one thread at a time.

    It subscribes again when the topic moves or the connection is lost. Without FLOW the broker
    sends no entries, but answers requests.

    Args:
        durable: whether the subscription is durable. Then several passive consumers may share it,
            unless one is ``exclusive``.
        start: for a subscription that is not durable, the first entry that it would receive.
        at_end: instead: the first one that is written later.
    """

    def __init__(
        self,
        lookup: Lookup,
        topic: str,
        subscription: str,
        *,
        durable: bool,
        exclusive: bool = False,
        start: EntryPlace | None = None,
        at_end: bool = False,
        read_compacted: bool = False,
    ) -> None:
        self.topic = topic
        self.subscription = subscription
        self._lookup = lookup
        self._durable = durable
        types = commands.SubscriptionType
        self._type = types.FAILOVER if durable and not exclusive else types.EXCLUSIVE
        self._start = None if start is None else MessageId(*start)
        self._at_end = at_end
        self._read_compacted = read_compacted or None
        self._timeout_s = lookup.timeout_s
        self._connection: Connection | None = None
        self._id = 0
        self._requested: tuple[Connection, int] | None = None
        self._closed = threading.Event()
        # Of entries that were dropped: the last one, and how many messages they had.
        self._received: tuple[MessageId, int] | None = None
        self._was_closed = False  # by the broker, since it was made
        self._changed = Monitor()

    def subscribed(self) -> Connection:
        """Subscribe if needed, and return the connection.

        A new subscription begins at the topic's first entry.

        Raises:
            TopicNotFound: the topic does not exist, or no longer.
            ConsumerBusy: another consumer has exclusive use of the subscription.
            EosError: the broker refuses, or does not answer.
        """
        connection = self._connection
        if connection is not None and not self._closed.is_set() and connection.is_alive:
            return connection
        self.close()
        connection = self._lookup.broker_of(self.topic)
        self._id = next(self._lookup.consumer_ids)
        self._closed.clear()
        subscribe(
            connection,
            self,
            subscribing(
                self.topic,
                self.subscription,
                self._id,
                kind=self._type,
                durable=self._durable,
                start=self._start,
                at_end=self._at_end,
                read_compacted=self._read_compacted,
            ),
            timeout_s=self._timeout_s,
            doing=f"Subscribing {self.subscription} to {self.topic}",
        )
        self._connection = connection
        return connection

    def request(
        self, make: Callable[..., WireMessage], answer: type[A], doing: str, **fields: object
    ) -> A:
        """Send the command ``make`` with ``fields``. After an error the next call subscribes again.

        Raises:
            EosError: the broker refuses, or does not answer.
        """
        connection = self.subscribed()

        def command(request_id: int) -> WireMessage:
            self._requested = None if make is commands.Seek else (connection, request_id)
            return make(consumer_id=self._id, request_id=request_id, **fields)

        try:
            return connection.request(command, answer, timeout_s=self._timeout_s, doing=doing)
        except EosError:
            self.close()
            raise

    def ask(self) -> tuple[EntryPlace, MessageId | None]:
        """Return the position after all deleted or acknowledged entries, and the last readable id.

        Raises:
            EosError: the broker refuses, or does not answer.
        """
        answer = self.request(
            commands.GetLastMessageId,
            commands.GetLastMessageIdResponse,
            f"Asking for the last entry of {self.topic}",
        )
        if answer.consumer_mark_delete_position is None:
            self.close()
            raise ProtocolError(
                f"The broker's answer has no position of the subscription on {self.topic}.",
                hint="Brokers send it since Pulsar 2.8.",
            )
        ledger, entry = answer.consumer_mark_delete_position.signed_place()
        return (ledger, entry + 1), last_id_of(answer)

    def permit(self, messages: int) -> None:
        """Send FLOW, so that the broker advances in the topic. See ``drop_received``."""
        # The broker skips markers and entries of aborted transactions, and acknowledges them
        # itself, so the position of ``ask`` moves past them (measured).
        connection = self.subscribed()
        connection.notify(lambda _: commands.Flow(consumer_id=self._id, permits=messages))

    def drop_received(self, wait_s: float) -> MessageId | None:
        """Acknowledge what was delivered since the last call, permit as much again, and return the
        last entry. None: nothing came within ``wait_s``.

        Raises:
            ConnectionLost: the broker closed the consumer, or the connection is lost.
        """
        with self._changed:
            if self._received is None:
                self._changed.wait(wait_s)
            received, self._received = self._received, None
            was_closed = self._was_closed
        connection = self._connection
        # Subscribed again, it would begin at its start, without permits.
        if connection is None or was_closed:
            raise ConnectionLost(f"The broker closed the consumer on {self.topic}.")
        if received is None:
            return None
        last, messages = received
        at = commands.MessageIdData.of_entry(last)
        kind = commands.AckType.CUMULATIVE
        connection.notify(
            lambda _: commands.Ack(consumer_id=self._id, ack_type=kind, message_ids=(at,))
        )
        self.permit(min(messages, MOST_PERMITS))
        return last

    def wait_until_closed(self) -> bool:
        """Whether the broker closes it within the timeout."""
        return self._closed.wait(self._timeout_s)

    def close(self, *, confirmed: bool = False) -> None:
        """Close it at the broker; it can be used again.

        Args:
            confirmed: wait for the answer: then another consumer may use the subscription.

        Raises:
            EosError: ``confirmed``, and the broker does not answer.
        """
        connection, self._connection = self._connection, None
        if connection is None:
            return
        if not confirmed:
            unsubscribe(connection, self._id)
            return
        connection.listeners.remove_consumer(self._id)
        connection.request(
            closing(self._id),
            commands.Success,
            timeout_s=self._timeout_s,
            doing=f"Closing the consumer of {self.subscription} on {self.topic}",
        )

    # --- ConsumerListener: called by the connection's reading thread ------------------------

    def on_delivery(self, delivery: Delivery) -> None:
        """Drop the entry."""
        # Only that it came is asked for, never its content: that may be damaged.
        at = delivery.command.message_id.message_id()
        try:
            messages = Entry.of(delivery).num_messages
        except ProtocolError:
            messages = 1
        with self._changed:
            before = 0 if self._received is None else self._received[1]
            self._received = MessageId(at.ledger, at.entry), before + messages
            self._changed.notify_all()

    def on_closed(self, reason: EosError) -> None:
        """The broker closed the consumer, or the connection ended."""
        self._closed.set()
        with self._changed:
            self._was_closed = True
            self._changed.notify_all()
        # A pending request gets no answer now (measured, at an unload). Only SEEK, which closes the
        # consumer itself, does.
        requested = self._requested
        if requested is not None:
            connection, request_id = requested
            # An unload leaves the request unanswered: it would be waited for until its timeout.
            connection.fail_request(request_id, reason)


class SubscriptionCursor:
    """The position of a durable subscription, which protects all entries after it from deletion.

    Made by ``PulsarClient.cursor``. For one thread at a time. The subscription is created at the
    first use, at the topic's first entry, and stays when the cursor is closed. Several cursors may
    move the same one, unless one is ``exclusive``.
    """

    def __init__(self, lookup: Lookup, topic: str, subscription: str, *, exclusive: bool) -> None:
        self.topic = topic
        self.subscription = subscription
        self._lookup = lookup
        self._consumer = PassiveConsumer(
            lookup, topic, subscription, durable=True, exclusive=exclusive
        )

    def exists(self) -> bool:
        """Whether the topic has the durable subscription. Creates nothing.

        Raises:
            TopicNotFound: the topic does not exist.
            EosError: the broker refuses, or does not answer.
        """
        # The broker refuses a consumer that is not durable under the name of a durable one
        # (measured); otherwise its subscription ends with it.
        consumer = PassiveConsumer(
            self._lookup, self.topic, self.subscription, durable=False, at_end=True
        )
        try:
            consumer.subscribed()
            consumer.close(confirmed=True)
        except NotAllowed as error:
            if _IS_DURABLE not in error.message:
                raise
            return True
        return False

    def place(self) -> EntryPlace:
        """Return the position after the last acknowledged entry.

        Raises:
            TopicNotFound: the topic does not exist, or no longer.
            EosError: the broker refuses, or does not answer.
        """
        return self._consumer.ask()[0]

    def acknowledge(self, last: MessageId) -> None:
        """Move after the entry ``last``, never backwards.

        Raises:
            EosError: the broker refuses, or does not answer.
        """
        doing = f"Acknowledging {last} of {self.topic} in {self.subscription}"
        answer = self._consumer.request(
            commands.Ack,
            commands.AckResponse,
            doing,
            ack_type=commands.AckType.CUMULATIVE,
            message_ids=(commands.MessageIdData.of_entry(last),),
        )
        check_moved(answer, doing)

    def close(self) -> None:
        """Close the consumer; the subscription stays. The cursor can be used again."""
        self._consumer.close()

    def __enter__(self) -> Self:
        """Subscribe.

        Raises:
            EosError: as ``place``.
        """
        self._consumer.subscribed()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Close the consumer, and wait for the broker's answer unless the block raised."""
        self._consumer.close(confirmed=error is None)


def check_moved(answer: commands.AckResponse, doing: str) -> None:
    """Check that a subscription has moved to a position, or was there already.

    Raises:
        EosError: the broker refuses.
    """
    # If it was there, 5.0.0-M1 answers with an error (measured), earlier releases with success.
    if answer.error is not None and _ALREADY_MOVED not in answer.message:
        raise broker_error(answer.error, answer.message, doing=doing)
