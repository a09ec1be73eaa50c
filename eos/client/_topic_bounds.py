"""The begin and end of a topic, asked repeatedly on shared connections."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar

from eos.client._lookup import Lookup
from eos.client._passive_consumer import PassiveConsumer
from eos.errors import BrokerError, RequestTimeout
from eos.ids import EntryPlace, MessageId
from eos.wire import commands

_NEVER_MS: Final = 2**62  # a publish time that no entry has
_PERMITS: Final = 100
_SKIPPING_S: Final = 0.5  # for the next entry that the broker skips
_READING_S: Final = 5.0  # for the next entry that it delivers

_Answer = TypeVar("_Answer")


class Bounds(NamedTuple):
    """The begin and end of a topic.

    ``first``: the position after all deleted entries: that of an entry, or before one. If no entry
    is left, it is in the last ledger that existed (measured).
    ``last_id``: the last entry that is readable now, or None. Never a marker or an aborted entry,
    and before all open transactions (measured).
    """

    first: EntryPlace
    last_id: MessageId | None


class TopicBounds:
    """The bounds of an exact topic, for one thread at a time. See ``PulsarClient.topic_bounds``.

    With ``read_compacted`` the last entry is that of a reader of the compacted topic.
    """

    def __init__(
        self,
        lookup: Lookup,
        topic: str,
        *,
        read_compacted: bool = False,
    ) -> None:
        self.topic = topic
        self._lookup = lookup
        self._read_compacted = read_compacted
        self._consumer = self._passive_consumer(read_compacted=read_compacted)
        self._seen: MessageId | None = None  # the last entry that was delivered behind an old end

    def _passive_consumer(self, start: EntryPlace | None = None, **more: bool) -> PassiveConsumer:
        return PassiveConsumer(
            self._lookup,
            self.topic,
            self._lookup.rules.subscription(f"eos-tail-{uuid.uuid4().hex}"),
            durable=False,
            start=start,
            **more,
        )

    def bounds(self) -> Bounds:
        """Return the bounds.

        ``first`` is exact as long as the broker keeps the subscription: after the topic was
        reloaded it is the first position of the first ledger (measured).

        Raises:
            TopicNotFound: the topic does not exist, or no longer.
            EosError: the broker refuses, or does not answer.
        """
        return self._retried(self._ask)

    def _ask(self) -> Bounds:
        first, last = self._consumer.ask()
        seen = self._seen
        if seen is not None and ((last and last.place >= seen.place) or seen.place < first):
            seen = self._seen = None  # the broker has a newer one, or it was deleted
        return Bounds(first, seen or last)

    def last_id(self) -> MessageId | None:
        """Return ``bounds().last_id``; it raises the same errors."""
        return self.bounds().last_id

    def reaches(self, entry: EntryPlace) -> bool:
        """Whether ``entry`` is in the topic, or was; errors as ``bounds``."""
        # By the broker's start position of a subscription: for an entry after all that were ever
        # written, that is the topic's first one (measured).
        return self._retried(lambda: self._normalized(entry)) >= entry

    def final_bounds(self) -> Bounds:
        """Return ``bounds``, with the last entry that a reader gets, even if the broker states an
        earlier one; from then on ``bounds`` knows it, too. Errors as there.

        It reads what is behind the stated entry, and takes half a second if a transaction is open.
        """
        return self._retried(self._final_bounds)

    def _final_bounds(self) -> Bounds:
        # Who asks for the last entry while a transaction is committed, or while a compaction begins
        # as the broker loads the topic's transactions, may leave it with an old answer, until
        # the next entry is written or the topic is unloaded (measured, 4.2.4).
        first, last = self._ask()
        start = first if last is None else (last.ledger, last.entry + 1)
        if (written := self._end()) <= start:
            return Bounds(first, last)
        self._read_on(start, written, read_compacted=self._read_compacted)
        return Bounds(first, self._seen or last)

    def first_undecided(self, end: EntryPlace | None = None) -> EntryPlace | None:
        """Return the position of the first open transaction before ``end`` (default: topic's end).

        None: all entries before ``end`` are readable now, or will never be. While a broker loads
        the topic's transactions, the result may be too early. Errors as ``bounds``.
        """
        return self._retried(lambda: self._first_undecided(end))

    def _first_undecided(self, end: EntryPlace | None) -> EntryPlace | None:
        first, last = self._ask()
        start = first if last is None else (last.ledger, last.entry + 1)
        if end is not None and end <= start:
            return None
        written = self._end()
        if written <= start:
            return None
        # Compare positions as the broker returns them: it may return the first one of a ledger as
        # the one after the previous ledger.
        wanted = written if end is None or end >= written else self._normalized(end)
        return self._read_on(start, wanted)

    def _read_on(
        self, start: EntryPlace, wanted: EntryPlace, *, read_compacted: bool = False
    ) -> EntryPlace | None:
        """Read from ``start`` on, and return the open transaction before ``wanted``, if any."""
        # The last readable entry does not show it, as markers and aborted entries may follow. A
        # consumer with a permit skips those and stops at an open transaction (measured).
        consumer = self._passive_consumer(start, read_compacted=read_compacted)
        try:
            consumer.permit(_PERMITS)
            place, since, silence_s = consumer.ask()[0], time.monotonic(), _SKIPPING_S
            while place < wanted:
                if time.monotonic() - since > silence_s:
                    return place
                received = consumer.drop_received(_SKIPPING_S / 20)
                if received is not None:
                    if read_compacted == self._read_compacted:
                        self._seen = received
                    if received.place >= wanted:
                        break
                    # If the stated end is old, only a longer silence shows the true one.
                    stated = self._consumer.ask()[1]
                    is_old = stated is None or stated.place < received.place
                    silence_s = _READING_S if is_old else _SKIPPING_S
                now = consumer.ask()[0]
                if now > place or received is not None:
                    place, since = now, time.monotonic()
            return None
        finally:
            consumer.close()

    def _end(self) -> EntryPlace:
        """The position after all that is written, also in open transactions."""
        try:
            return self._seek(_NEVER_MS)
        except BrokerError:  # in a terminated topic of one ledger that was loaded again (measured)
            # Not in others: in an empty last ledger it is not the place after the entries before.
            return self._begin_of(self._passive_consumer(at_end=True))

    def _normalized(self, place: EntryPlace) -> EntryPlace:
        """The position at which the broker starts a subscription that asks for ``place``."""
        return self._begin_of(self._passive_consumer(place))

    def _begin_of(self, consumer: PassiveConsumer) -> EntryPlace:
        try:
            return consumer.ask()[0]
        finally:
            consumer.close()

    def place_at(self, publish_time_ms: int) -> EntryPlace:
        """Return the position of the first entry published at ``publish_time_ms`` or later.

        If there is none, the position after the last entry. Errors as ``bounds``.
        """
        # The broker's SEEK by publish time assumes that times never decrease in a topic.
        return self._retried(lambda: self._seek(publish_time_ms))

    def _seek(self, publish_time_ms: int) -> EntryPlace:
        doing = f"Looking for the entry of {publish_time_ms} ms in {self.topic}"
        seeking = self._passive_consumer()
        try:
            seeking.request(
                commands.Seek, commands.Success, doing, message_publish_time=publish_time_ms
            )
            # The broker closes the consumer; its subscription keeps the new position.
            if not seeking.wait_until_closed():
                raise RequestTimeout(f"{doing}: the broker did not close the consumer.")
            return seeking.ask()[0]
        finally:
            seeking.close()

    def _retried(self, question: Callable[[], _Answer]) -> _Answer:
        from eos.retry import attempts  # lazy: executors that only write have no tenacity

        return attempts(self._lookup.timeout_s)(question)

    def close(self) -> None:
        """Close the consumer at the broker; the object can be used again."""
        self._consumer.close()
