"""Durable subscriptions: they keep a topic's entries from deletion. Nothing is read through them.

A consumer without FLOW gets nothing and may still acknowledge: enough to move a subscription.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Final, Self

from eos.errors import Unauthorized, broker_error
from eos.ids import MessageId
from eos.transport.connection import Connection
from eos.transport.rules import PREFIX_HINT
from eos.wire import commands

_WAS_THERE: Final = "MarkDeletingMarkedPosition"


@contextmanager
def naming_the_policy() -> Iterator[None]:
    """Around a SUBSCRIBE: who is refused is told of the policy that rules names."""
    try:
        yield
    except Unauthorized as error:
        error.hint = PREFIX_HINT
        raise


def subscribe(
    connection: Connection,
    make: Callable[[int], commands.Subscribe],
    *,
    timeout_s: float,
    doing: str,
) -> None:
    """SUBSCRIBE; when it fails nothing stays open.

    Raises:
        EosError: the broker refuses, or does not answer.
    """
    consumer_id = make(0).consumer_id
    try:
        with naming_the_policy():
            connection.request(make, commands.Success, timeout_s=timeout_s, doing=doing)
    except BaseException:
        connection.notify(closing(consumer_id))  # the broker may have opened it
        raise


def closing(consumer_id: int) -> Callable[[int], commands.CloseConsumer]:
    """Makes CLOSE_CONSUMER from a request id."""
    return lambda request_id: commands.CloseConsumer(consumer_id=consumer_id, request_id=request_id)


def check_moved(answer: commands.AckResponse, doing: str) -> None:
    """Whether a subscription is behind the place that it was moved to.

    One that was there already is: 5.0.0-M1 answers that with an error (measured), releases before
    it with success.

    Raises:
        EosError: the broker refuses.
    """
    if answer.error is not None and _WAS_THERE not in answer.message:
        raise broker_error(answer.error, answer.message, doing=doing)


class DurableConsumer:
    """Has the durable ``subscription`` to itself between ``open`` and ``close``.

    A subscription that is missing is made, at the topic's first entry.
    """

    def __init__(
        self,
        connection: Connection,
        topic: str,
        subscription: str,
        consumer_id: int,
        *,
        timeout_s: float,
    ) -> None:
        self._connection = connection
        self._topic = topic
        self._subscription = subscription
        self._id = consumer_id
        self._timeout_s = timeout_s

    def __enter__(self) -> Self:
        """SUBSCRIBE.

        Raises:
            ConsumerBusy: another consumer has the subscription.
            EosError: the broker refuses, or does not answer.
        """
        subscribe(
            self._connection,
            lambda request_id: commands.Subscribe(
                topic=self._topic,
                subscription=self._subscription,
                subscription_type=commands.SubscriptionType.EXCLUSIVE,
                consumer_id=self._id,
                request_id=request_id,
                durable=True,
                initial_position=commands.InitialPosition.EARLIEST,
                force_topic_creation=False,
            ),
            timeout_s=self._timeout_s,
            doing=f"Subscribing {self._subscription} to {self._topic}",
        )
        return self

    def acknowledge(self, message_id: MessageId) -> None:
        """Move the subscription behind the entry of ``message_id``; never back.

        Raises:
            EosError: the broker refuses, or does not answer: it does not when it has closed this
                consumer meanwhile.
        """
        doing = f"Acknowledging {message_id} of {self._topic} in {self._subscription}"
        answer = self._connection.request(
            lambda request_id: commands.Ack(
                consumer_id=self._id,
                ack_type=commands.AckType.CUMULATIVE,
                message_ids=(commands.MessageIdData.of_entry(message_id),),
                request_id=request_id,
            ),
            commands.AckResponse,
            timeout_s=self._timeout_s,
            doing=doing,
        )
        check_moved(answer, doing)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """CLOSE_CONSUMER: once it is answered another consumer may have the subscription.

        Raises:
            EosError: the broker does not answer.
        """
        if error is not None:
            self._connection.notify(closing(self._id))
            return
        self._connection.request(
            closing(self._id),
            commands.Success,
            timeout_s=self._timeout_s,
            doing=f"Closing the consumer of {self._subscription} on {self._topic}",
        )
