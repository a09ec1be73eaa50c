"""A consumer that reads nothing: without FLOW it gets no entry, and may still ask and acknowledge.

It lives on a connection that others use as well, and begins anew by itself when the topic moves or
the connection is lost.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

from eos.client._lookup import Lookup
from eos.client._subscriptions import closing, subscribe
from eos.errors import EosError, ProtocolError
from eos.ids import EntryPlace, MessageId
from eos.transport.connection import Connection
from eos.wire import commands
from eos.wire.frames import Delivery
from eos.wire.messages import WireMessage

A = TypeVar("A", bound=WireMessage)


class IdleConsumer:
    """One consumer of ``subscription`` on one exact topic. For one thread at a time.

    ``start`` is for a subscription that is not durable: the first entry that it would get.
    """

    def __init__(
        self,
        lookup: Lookup,
        topic: str,
        subscription: str,
        consumer_ids: Iterator[int],
        *,
        durable: bool,
        start: EntryPlace | None = None,
        read_compacted: bool = False,
        timeout_s: float,
    ) -> None:
        self.topic = topic
        self.subscription = subscription
        self._lookup = lookup
        self._consumer_ids = consumer_ids
        self._durable = durable
        self._start = None if start is None else MessageId(*start)
        self._read_compacted = read_compacted or None
        self._timeout_s = timeout_s
        self._connection: Connection | None = None
        self._id = 0
        self._asked: tuple[Connection, int] | None = None
        self._closed = threading.Event()

    def subscribed(self) -> Connection:
        """The connection on which it is subscribed, at the topic's first entry unless the
        subscription is elsewhere already.

        Raises:
            TopicNotFound: there is no such topic, or not any more.
            EosError: the broker refuses, or does not answer.
        """
        connection = self._connection
        if connection is not None and not self._closed.is_set() and connection.is_alive:
            return connection
        self.close()
        connection = self._lookup.broker_of(self.topic)
        self._id = next(self._consumer_ids)
        self._closed.clear()
        connection.add_consumer(self._id, self)
        # Of a durable one a copy of ourselves may be there too, which does no harm.
        types = commands.SubscriptionType
        kind = types.FAILOVER if self._durable else types.EXCLUSIVE
        start = None if self._start is None else commands.MessageIdData.of_entry(self._start)
        try:
            subscribe(
                connection,
                lambda request_id: commands.Subscribe(
                    topic=self.topic,
                    subscription=self.subscription,
                    subscription_type=kind,
                    consumer_id=self._id,
                    request_id=request_id,
                    durable=self._durable,
                    start_message_id=start,
                    read_compacted=self._read_compacted,
                    initial_position=commands.InitialPosition.EARLIEST,
                    force_topic_creation=False,
                ),
                timeout_s=self._timeout_s,
                doing=f"Subscribing {self.subscription} to {self.topic}",
            )
        except BaseException:
            connection.remove_consumer(self._id)
            raise
        self._connection = connection
        return connection

    def request(
        self, make: Callable[..., WireMessage], answer: type[A], doing: str, **fields: object
    ) -> A:
        """Send the command ``make`` with ``fields``; whatever goes wrong, the next one begins anew.

        Raises:
            EosError: the broker refuses, or does not answer.
        """
        connection = self.subscribed()

        def command(request_id: int) -> WireMessage:
            self._asked = None if make is commands.Seek else (connection, request_id)
            return make(consumer_id=self._id, request_id=request_id, **fields)

        try:
            return connection.request(
                command,
                answer,
                timeout_s=self._timeout_s,
                doing=doing,
            )
        except EosError:
            self.close()
            raise

    def ask(self) -> tuple[EntryPlace, MessageId | None]:
        """The place behind all that is deleted or acknowledged, and the last readable entry.

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
                f"The broker does not say where the subscription on {self.topic} stands.",
                hint="Brokers do since Pulsar 2.8.",
            )
        ledger, entry = answer.consumer_mark_delete_position.signed_place()
        last = answer.last_message_id.message_id()
        return (ledger, entry + 1), None if last.ledger < 0 else last._replace(batch_index=-1)

    def permit(self, messages: int) -> None:
        """FLOW: let the broker go on in the topic. What it delivers is dropped.

        It passes over markers and entries of aborted transactions, and acknowledges them itself, so
        the place that ``ask`` returns moves behind them (measured).

        Raises:
            EosError: the broker refuses, or does not answer.
        """
        connection = self.subscribed()
        connection.notify(lambda _: commands.Flow(consumer_id=self._id, permits=messages))

    def wait_until_closed(self) -> bool:
        """Whether the broker has closed it within the deadline."""
        return self._closed.wait(self._timeout_s)

    def close(self) -> None:
        """Free what the broker keeps for it; it may be used again."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.remove_consumer(self._id)
            connection.notify(closing(self._id))

    # --- ConsumerListener: called by the connection's reading thread ------------------------

    def on_delivery(self, delivery: Delivery) -> None:
        """Nothing was asked for."""

    def on_closed(self, reason: EosError) -> None:
        """The consumer or its connection ended without our doing.

        What was asked on the way to its end gets no answer (measured, at an unload); only SEEK,
        which ends the consumer itself, gets one.
        """
        self._closed.set()
        asked = self._asked
        if asked is not None:
            connection, request_id = asked
            connection.fail_request(request_id, reason)
