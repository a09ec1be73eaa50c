"""How readers of entries are opened, and which of them wait to go on."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Final

from eos.client._entry_reader import EntryReader, new_subscription
from eos.client._linger import LingerClock
from eos.client._lookup import Lookup
from eos.client._shelf import PARKED_FOR_S, Shelf
from eos.errors import ConfigurationError, ConsumerBusy, NotAllowed
from eos.ids import MessageId

CROWDED: Final = (ConsumerBusy, NotAllowed)
"""What brokers answer where a policy limits consumers, or subscriptions (measured)."""
_CROWDED_PAUSE_S: Final = 0.5


class Readers:
    """Those of one client.

    Args:
        consumer_ids: numbers that nobody else uses in the client.

    Attributes:
        was_crowded: where readers are parked, somebody was once refused.
    """

    def __init__(
        self, lookup: Lookup, clock: LingerClock, consumer_ids: Iterator[int], *, timeout_s: float
    ) -> None:
        self.was_crowded = False
        self._lookup = lookup
        self._consumer_ids = consumer_ids
        self._timeout_s = timeout_s
        self._parked = Shelf[EntryReader](clock, EntryReader.close)

    def open(
        self, topic: str, start: MessageId | None, permits: int, subscription: str | None = None
    ) -> EntryReader:
        """See ``PulsarClient.entry_reader``; ``topic`` is the exact name."""
        reader = EntryReader(
            self._lookup.broker_of(topic),
            topic,
            self._consumer_ids,
            start,
            timeout_s=self._timeout_s,
            permits=permits,
            subscription=subscription,
        )
        reader.open()
        return reader

    def open_in_a_crowd(self, topic: str, start: MessageId | None, permits: int) -> EntryReader:
        """``open`` where other processes have parked readers too: while a policy admits no more,
        these are waited for, and ``was_crowded`` says so from then on.

        By one name: of a reader that is refused while another one closes, the broker may keep the
        subscription (measured). The next try takes it over.
        """
        subscription = new_subscription()
        deadline = time.monotonic() + PARKED_FOR_S + self._timeout_s
        while True:
            try:
                with self.noting_a_crowd():
                    return self.open(topic, start, permits, subscription)
            except CROWDED:
                if time.monotonic() > deadline:
                    raise
            time.sleep(_CROWDED_PAUSE_S)  # by hand: executors have no tenacity

    @contextlib.contextmanager
    def noting_a_crowd(self) -> Iterator[None]:
        """Whoever is refused in the block may be in the way of readers that are parked."""
        try:
            yield
        except CROWDED:
            self.was_crowded = True
            raise

    def take(self, topic: str) -> EntryReader | None:
        """The one on ``topic`` that waits and can still read; it is handed out once."""
        reader = self._parked.take(topic)
        if reader is None or reader.is_usable:
            return reader
        reader.close()
        return None

    def park(self, reader: EntryReader) -> None:
        """Keep ``reader`` for a while. What it has read is acknowledged: nobody shall take it for
        one that is stuck. Where somebody was refused once, it is closed instead."""
        if self.was_crowded:
            reader.close()
            return
        reader.acknowledge()
        self._parked.put(reader.topic, reader)

    def clear(self) -> None:
        """Forget all that wait, and what comes later; their connections are being closed."""
        self._parked.clear()


def checked_start(start: MessageId | None) -> MessageId | None:
    """``start``, when a reader may begin there.

    Raises:
        ConfigurationError: it is something else.
    """
    if start is None or isinstance(start, MessageId):
        return start
    raise ConfigurationError(
        f"start={start!r} is no eos.ids.MessageId.",
        hint="None begins at the topic's first entry, MessageId(ledger, entry) at that one; "
        "client.tail(topic) says where the topic ends, and which entry belongs to a time.",
    )
