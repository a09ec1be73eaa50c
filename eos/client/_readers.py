"""How readers of entries are opened, and which of them wait to go on."""

from __future__ import annotations

from collections.abc import Iterator

from eos.client._entry_reader import EntryReader, new_subscription
from eos.client._limit_backoff import OF_READERS, Crowd
from eos.client._lookup import Lookup
from eos.client._shelf import Shelf
from eos.client._timer import LingerClock
from eos.errors import ConfigurationError
from eos.ids import MessageId


class Readers:
    """Those of one client.

    Args:
        crowd: where readers are parked, a policy may admit no more.
        consumer_ids: numbers that nobody else uses in the client.
    """

    def __init__(
        self,
        lookup: Lookup,
        clock: LingerClock,
        crowd: Crowd,
        consumer_ids: Iterator[int],
        timeout_s: float,
    ) -> None:
        self._crowd = crowd
        self._lookup = lookup
        self._consumer_ids = consumer_ids
        self._timeout_s = timeout_s
        self._parked = Shelf[EntryReader](clock, crowd, EntryReader.close)

    def open(
        self, topic: str, start: MessageId | None, permits: int, subscription: str | None = None
    ) -> EntryReader:
        """See ``PulsarClient.entry_reader``; ``topic`` is the exact name."""
        reader = EntryReader(
            self._lookup.broker_of(topic),
            topic,
            self._consumer_ids,
            start,
            self._lookup.rules,
            timeout_s=self._timeout_s,
            permits=permits,
            subscription=subscription,
        )
        reader.open()
        return reader

    def open_in_a_crowd(self, topic: str, start: MessageId | None, permits: int) -> EntryReader:
        """``open`` where other processes have parked readers too: while a policy admits no more,
        these are waited for.

        By one name: of a reader that is refused while another one closes, the broker may keep the
        subscription (measured). The next try takes it over.
        """
        name = new_subscription(self._lookup.rules)
        return self._crowd.outwait(
            lambda: self.open(topic, start, permits, name), OF_READERS, self._timeout_s
        )

    def take(self, topic: str) -> EntryReader | None:
        """The one on ``topic`` that waits and can still read; it is handed out once."""
        reader = self._parked.take(topic)
        if reader is None or reader.is_usable:
            return reader
        reader.close()
        return None

    def park(self, reader: EntryReader) -> None:
        """Keep ``reader`` for a while. What it has read is acknowledged: nobody shall take it for
        one that is stuck."""
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
