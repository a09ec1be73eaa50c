"""Where a topic begins and ends, asked again and again on connections that others use as well."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, TypeVar

from eos.client._lookup import Lookup
from eos.client._passive_consumer import PassiveConsumer
from eos.errors import RequestTimeout
from eos.ids import EntryPlace, MessageId
from eos.wire import commands

_NEVER_MS: Final = 2**62
"""A publish time that no entry has."""
_PERMITS: Final = 16
_PASSING_S: Final = 0.5
"""How long the broker may take for the next one of the entries that it passes over."""

_Answer = TypeVar("_Answer")


class Bounds(NamedTuple):
    """What is there of a topic.

    ``first``: behind everything that has been deleted; the place of an entry, or before one. While
    nothing is left it is that of the last ledger that there was (measured).
    ``last_id``: the last entry that is readable now; None when there is none. Never a marker, never
    an aborted entry, below every open transaction (measured).
    """

    first: EntryPlace
    last_id: MessageId | None


class TopicBounds:
    """The bounds of one exact topic; made by ``PulsarClient.tail``. For one thread at a time.

    The first question costs a look-up and a subscription, later ones a round trip. With
    ``read_compacted`` the last entry is that of a reader of the compacted topic.
    """

    def __init__(
        self,
        lookup: Lookup,
        topic: str,
        consumer_ids: Iterator[int],
        timeout_s: float,
        *,
        read_compacted: bool = False,
    ) -> None:
        self.topic = topic
        self._lookup = lookup
        self._consumer_ids = consumer_ids
        self._timeout_s = timeout_s
        self._consumer = self._passive_consumer(read_compacted=read_compacted)

    def _passive_consumer(
        self, start: EntryPlace | None = None, *, read_compacted: bool = False
    ) -> PassiveConsumer:
        return PassiveConsumer(
            self._lookup,
            self.topic,
            self._lookup.rules.subscription(f"eos-tail-{uuid.uuid4().hex}"),
            self._consumer_ids,
            durable=False,
            start=start,
            read_compacted=read_compacted,
            timeout_s=self._timeout_s,
        )

    def bounds(self) -> Bounds:
        """Where the topic begins and ends.

        ``first`` is exact as long as the broker keeps the subscription: when a topic has been
        loaded anew it is the first place of the first ledger (measured).

        Raises:
            TopicNotFound: there is no such topic, or not any more.
            EosError: the broker refuses, or does not answer.
        """
        return self._until_answered(lambda: Bounds(*self._consumer.ask()))

    def last_id(self) -> MessageId | None:
        """``bounds().last_id``; the same errors."""
        return self.bounds().last_id

    def reaches(self, entry: EntryPlace) -> bool:
        """Whether the topic is so long that ``entry`` is in it, or was.

        By where the broker lets a subscription begin: for an entry behind all that was ever written
        it takes the topic's first one (measured).

        Raises:
            TopicNotFound: there is no such topic, or not any more.
            EosError: the broker refuses, or does not answer.
        """
        return self._until_answered(lambda: self._as_named(entry)) >= entry

    def first_undecided(self, end: EntryPlace | None = None) -> EntryPlace | None:
        """Where an open transaction holds readers back before ``end`` (the topic's end by default);
        None when all before it is readable now, or will never be.

        The place of the last readable entry does not tell: markers and aborted entries follow it as
        well. A consumer with a permit passes over those, and stops at an open transaction
        (measured). While a broker loads the topic's transactions it may be named too early.

        Raises:
            TopicNotFound: there is no such topic, or not any more.
            EosError: the broker refuses, or does not answer.
        """
        return self._until_answered(lambda: self._first_undecided(end))

    def _first_undecided(self, end: EntryPlace | None) -> EntryPlace | None:
        first, last = self._consumer.ask()
        start = first if last is None else (last.ledger, last.entry + 1)
        if end is not None and end <= start:
            return None
        written = self._seek(_NEVER_MS)
        if written <= start:
            return None
        # Places are compared as the broker names them: the first one of a ledger is the one behind
        # the ledger before.
        wanted = written if end is None or end >= written else self._as_named(end)
        there = self._passive_consumer(start)
        try:
            return self._passed(there, wanted)
        finally:
            there.close()

    def _passed(self, there: PassiveConsumer, wanted: EntryPlace) -> EntryPlace | None:
        there.permit(_PERMITS)
        place = there.ask()[0]
        since = time.monotonic()
        while place < wanted:
            if time.monotonic() - since > _PASSING_S:
                return place
            time.sleep(_PASSING_S / 20)
            if (now := there.ask()[0]) > place:
                place, since = now, time.monotonic()
        return None

    def _as_named(self, place: EntryPlace) -> EntryPlace:
        """Where the broker lets a subscription begin that asks for ``place``."""
        there = self._passive_consumer(place)
        try:
            return there.ask()[0]
        finally:
            there.close()

    def place_at(self, publish_time_ms: int) -> EntryPlace:
        """The place of the first entry that was published at ``publish_time_ms`` or later, or
        behind the last entry.

        By the broker's search (SEEK), which takes it that times never go back in a topic.

        Raises:
            TopicNotFound: there is no such topic, or not any more.
            EosError: the broker refuses, or does not answer.
        """
        return self._until_answered(lambda: self._seek(publish_time_ms))

    def _seek(self, publish_time_ms: int) -> EntryPlace:
        doing = f"Looking for the entry of {publish_time_ms} ms in {self.topic}"
        seeking = self._passive_consumer()
        try:
            seeking.request(
                commands.Seek, commands.Success, doing, message_publish_time=publish_time_ms
            )
            # The broker closes the consumer, and keeps its subscription there for the next one.
            if not seeking.wait_until_closed():
                raise RequestTimeout(f"{doing}: the broker did not close the consumer.")
            return seeking.ask()[0]
        finally:
            seeking.close()

    def _until_answered(self, question: Callable[[], _Answer]) -> _Answer:
        from eos.retry import attempts  # executors that only write have no tenacity

        return attempts(self._timeout_s)(question)

    def close(self) -> None:
        """Free what the broker keeps for it; it may be asked again."""
        self._consumer.close()
