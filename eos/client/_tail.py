"""Asks for a topic's last entry, again and again, on connections that others use as well.

A consumer without FLOW gets nothing, and may still ask.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator

from eos.client._lookup import Lookup
from eos.client._subscriptions import closing, subscribe
from eos.errors import EosError
from eos.ids import MessageId
from eos.transport.connection import Connection
from eos.wire import commands
from eos.wire.frames import Delivery


class Tail:
    """The end of one exact topic; made by ``PulsarClient.tail``. For one thread at a time.

    The first question costs a look-up and a subscription, later ones a round trip.
    """

    def __init__(
        self, lookup: Lookup, topic: str, consumer_ids: Iterator[int], *, timeout_s: float
    ) -> None:
        self.topic = topic
        self._lookup = lookup
        self._consumer_ids = consumer_ids
        self._timeout_s = timeout_s
        self._connection: Connection | None = None
        self._id = 0
        self._closed = threading.Event()

    def last_id(self) -> MessageId | None:
        """The last entry that is readable now; None when there is none.

        Never a marker, never an aborted entry, below every open transaction (measured).

        Raises:
            TopicNotFound: there is no such topic, or not any more.
            EosError: the broker refuses, or does not answer.
        """
        from eos.retry import attempts  # executors that only write have no tenacity

        for attempt in attempts(self._timeout_s):
            with attempt:
                return self._ask()
        raise AssertionError  # the last attempt's error passes

    def _ask(self) -> MessageId | None:
        connection = self._connection
        if connection is None or self._closed.is_set() or not connection.is_alive:
            connection = self._open()
        try:
            answer = connection.request(
                lambda request_id: commands.GetLastMessageId(
                    consumer_id=self._id, request_id=request_id
                ),
                commands.GetLastMessageIdResponse,
                timeout_s=self._timeout_s,
                doing=f"Asking for the last entry of {self.topic}",
            )
        except EosError:
            self.close()  # whatever it was, the next question begins anew
            raise
        last = answer.last_message_id.message_id()
        return None if last.ledger < 0 else last._replace(batch_index=-1)

    def _open(self) -> Connection:
        self.close()
        connection = self._lookup.broker_of(self.topic)
        self._id = next(self._consumer_ids)
        self._closed.clear()
        connection.listen_to_consumer(self._id, self)
        try:
            subscribe(
                connection,
                lambda request_id: commands.Subscribe(
                    topic=self.topic,
                    subscription=f"eos-tail-{uuid.uuid4().hex}",
                    subscription_type=commands.SubscriptionType.EXCLUSIVE,
                    consumer_id=self._id,
                    request_id=request_id,
                    durable=False,
                    initial_position=commands.InitialPosition.LATEST,
                    force_topic_creation=False,
                ),
                timeout_s=self._timeout_s,
                doing=f"Looking at the end of {self.topic}",
            )
        except BaseException:
            connection.forget_consumer(self._id)
            raise
        self._connection = connection
        return connection

    def close(self) -> None:
        """Free what the broker keeps for it; it may be asked again."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.forget_consumer(self._id)
            connection.notify(closing(self._id))

    # --- ConsumerListener: called by the connection's reading thread ------------------------

    def on_delivery(self, delivery: Delivery) -> None:
        """Nothing was asked for."""

    def on_closed(self, reason: EosError) -> None:  # noqa: ARG002
        """The consumer or its connection ended without our doing."""
        self._closed.set()
