"""The durable subscription of a query: it shows the backlog, and keeps unread entries."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Collection, Iterable, Mapping
from typing import Final, Protocol

from eos.client import SubscriptionCursor
from eos.errors import EosError
from eos.ids import EntryPlace, MessageId
from eos.retry import attempts
from eos.sources._offsets import place_text
from eos.waiting import parallel_map

logger = logging.getLogger(__name__)

PREFIX: Final = "eos-source-"  # Prefix of generated names.


def new_subscription_name() -> str:
    """Return a name that no other query has."""
    return f"{PREFIX}{secrets.token_hex(6)}"


_AGAIN_S: Final = 10.0  # until unfinished messages are looked for again


class CursorFactory(Protocol):
    """The methods of ``SourceTopics`` that are used here."""

    def cursor(self, name: str, subscription: str) -> SubscriptionCursor:
        """Return the durable subscription of one partition."""

    def unfinished_before(self, name: str, place: EntryPlace) -> EntryPlace:
        """Return where unfinished messages begin in earlier ledgers, otherwise ``place``."""


class QuerySubscription:
    """The subscription ``name`` on all partitions of a query. Nothing is read through it."""

    # It moves after Spark has committed an epoch, and one entry less far: so the ledger of the last
    # entry that was read is kept, which proves that no later entries were deleted. (A ledger whose
    # entries are all acknowledged disappears when the topic is reloaded: measured.)
    # The entries before it are kept by its ledger: only a move to another one could lose the first
    # chunks of messages that are not complete yet.

    def __init__(self, name: str, cursors: CursorFactory, *, timeout_s: float) -> None:
        self.name = name
        self._cursors = cursors
        self._timeout_s = timeout_s
        self._kept: dict[str, SubscriptionCursor] = {}
        self._ledgers: dict[str, int] = {}  # in which it is
        self._not_before: dict[str, float] = {}  # by time.monotonic
        self._read_before: dict[str, EntryPlace] = {}

    def keep(
        self, places: Mapping[str, EntryPlace], unknown: Collection[str] = ()
    ) -> dict[str, EntryPlace]:
        """Create it where it is missing, and keep the entries at ``places`` and after them.

        ``unknown``: those of ``places`` that are not in the checkpoint: they begin with the topic's
        first entry.

        Returns:
            ``places``; but if the query's generated subscription is further in an unknown
            partition, its position.

        Raises:
            EosError: the broker refuses, or does not answer.
        """
        # Older releases did not keep the places in topics that a query no longer read.
        missing = [
            (name, place, name in unknown)
            for name, place in places.items()
            if name not in self._kept
        ]
        parallel_map(lambda one: self._begin(*one), missing)
        before = {name: self._read_before[name] for name in unknown if name in self._read_before}
        return {**places, **before}

    def forget(self, names: Iterable[str]) -> None:
        """Create it again in these partitions, which were deleted: they may be recreated."""
        for name in names:
            if (cursor := self._kept.pop(name, None)) is not None:
                cursor.close()

    def _begin(self, name: str, place: EntryPlace, is_unknown: bool) -> None:
        # The topic may move to another broker meanwhile.
        for attempt in attempts(self._timeout_s):
            with attempt:
                self._begin_once(name, place, is_unknown)

    def _begin_once(self, name: str, place: EntryPlace, is_unknown: bool) -> None:
        cursor = self._kept[name] = self._cursors.cursor(name, self.name)
        position = cursor.place()
        self._ledgers[name] = position[0]
        # At the beginning of a ledger it has only passed an empty ledger: nothing was read.
        if position > place and position[1] > 0 and is_unknown and self.name.startswith(PREFIX):
            self._read_before[name] = position
            logger.warning(
                "The query has read %s before, as its subscription %s shows, and continues from "
                "%s. The checkpoint does not have the exact place, so some messages may be read "
                "twice.",
                name,
                self.name,
                place_text(position),
                extra={"topic": name, "subscription": self.name},
            )
            return
        if position > place:
            logger.warning(
                "The subscription %s on %s is at %s, but this query continues from %s: it does not "
                "keep the entries in between. It was moved by another query with the same "
                "subscription, by time to live, a backlog quota or by hand, or the checkpoint is "
                "an older one.",
                self.name,
                name,
                place_text(position),
                place_text(place),
                extra={"topic": name, "subscription": self.name},
            )
        self._move(name, place)

    def move(self, places: Mapping[str, EntryPlace | None]) -> None:
        """Keep only the entries at ``places`` and after them."""
        # Failures are logged: the next epoch moves the subscription, and what the query reads does
        # not depend on it.
        for name, error in parallel_map(lambda one: self._try(*one), list(places.items())):
            if error is not None:
                logger.warning(
                    "The subscription %s on %s could not be moved: %s",
                    self.name,
                    name,
                    error,
                    extra={"topic": name, "subscription": self.name},
                )

    def _try(self, name: str, place: EntryPlace | None) -> tuple[str, EosError | None]:
        try:
            self._move(name, place)
        except EosError as error:
            return name, error
        return name, None

    def _move(self, name: str, place: EntryPlace | None) -> None:
        if name not in self._kept:
            self._kept[name] = self._cursors.cursor(name, self.name)
        cursor = self._kept[name]
        if name not in self._ledgers:
            self._ledgers[name] = cursor.place()[0]
        if place is not None and place[0] > self._ledgers[name]:
            if time.monotonic() < self._not_before.get(name, 0):
                return
            needed = self._cursors.unfinished_before(name, place)
            if needed < place:
                self._not_before[name] = time.monotonic() + _AGAIN_S
            place = needed
        # Up to one entry less; without one to acknowledge, the subscription is just created.
        if place is not None and place[1] > 1:
            cursor.acknowledge(MessageId(place[0], place[1] - 2))
            self._ledgers[name] = place[0]
        else:
            cursor.place()
