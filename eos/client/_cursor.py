"""A durable subscription that only marks a place: what is behind it is kept from deletion."""

from __future__ import annotations

from collections.abc import Iterator

from eos.client._lookup import Lookup
from eos.client._passive_consumer import IdleConsumer
from eos.client._subscriptions import check_moved
from eos.ids import EntryPlace, MessageId
from eos.wire import commands


class SubscriptionCursor:
    """Made by ``PulsarClient.cursor``. For one thread at a time.

    The subscription is made when it is first used, at the topic's first entry, and stays when this
    is closed. Several may move the same one.
    """

    def __init__(
        self,
        lookup: Lookup,
        topic: str,
        subscription: str,
        consumer_ids: Iterator[int],
        *,
        timeout_s: float,
    ) -> None:
        self.topic = topic
        self.subscription = subscription
        self._consumer = IdleConsumer(
            lookup, topic, subscription, consumer_ids, durable=True, timeout_s=timeout_s
        )

    def place(self) -> EntryPlace:
        """Behind the last entry that is acknowledged. Makes the subscription when it is missing.

        Raises:
            TopicNotFound: there is no such topic, or not any more.
            EosError: the broker refuses, or does not answer.
        """
        return self._consumer.ask()[0]

    def acknowledge(self, last: MessageId) -> None:
        """Move behind the entry ``last``; never back.

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
        """End the consumer; the subscription stays. It may be used again."""
        self._consumer.close()
