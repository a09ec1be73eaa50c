"""SUBSCRIBE and CLOSE_CONSUMER, as all consumers and readers send them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from eos.errors import Unauthorized
from eos.transport.address import PREFIX_HINT
from eos.transport.connection import Connection
from eos.wire import commands


@contextmanager
def prefix_hint() -> Iterator[None]:
    """Around SUBSCRIBE: add a hint at the policy for subscription names to ``Unauthorized``."""
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
    """Send SUBSCRIBE; on an error nothing stays open.

    Raises:
        EosError: the broker refuses, or does not answer.
    """
    consumer_id = make(0).consumer_id
    try:
        with prefix_hint():
            connection.request(make, commands.Success, timeout_s=timeout_s, doing=doing)
    except BaseException:
        connection.notify(closing(consumer_id))  # the broker may have opened it
        raise


def closing(consumer_id: int) -> Callable[[int], commands.CloseConsumer]:
    """Return a function that makes CLOSE_CONSUMER from a request id."""
    return lambda request_id: commands.CloseConsumer(consumer_id=consumer_id, request_id=request_id)
