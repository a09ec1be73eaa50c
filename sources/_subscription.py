"""The durable subscription of a query: it shows the backlog, and keeps what is not read yet.

Nothing is read through it. It moves when Spark has committed an epoch, and stays one entry behind:
so the ledger of the last entry that was read is kept, and with it the proof that nothing behind it
was deleted (a ledger that is all acknowledged goes away when the topic is loaded anew: measured).
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping
from typing import Final, Protocol

from eos.at_once import at_once
from eos.client import SubscriptionCursor
from eos.errors import EosError
from eos.ids import EntryPlace, MessageId
from eos.retry import attempts
from sources._offsets import place_text

logger = logging.getLogger("sources.subscription")

PREFIX: Final = "eos-source-"
"""Of names that are not given by the user."""


def new_subscription_name() -> str:
    """A name that no other query has."""
    return f"{PREFIX}{secrets.token_hex(6)}"


class Cursors(Protocol):
    """What is asked of a planner."""

    def cursor(self, name: str, subscription: str) -> SubscriptionCursor:
        """The durable subscription of one partition."""


class QuerySubscription:
    """The subscription ``name`` on all partitions of a query."""

    def __init__(self, name: str, cursors: Cursors, *, timeout_s: float) -> None:
        self.name = name
        self._cursors = cursors
        self._timeout_s = timeout_s
        self._kept: dict[str, SubscriptionCursor] = {}

    def keep(self, places: Mapping[str, EntryPlace | None]) -> None:
        """Make it where it is missing, and keep what is at the places and behind them. Topics
        move: who is refused meanwhile asks again.

        Raises:
            EosError: the broker refuses, or does not answer.
        """
        missing = [(name, place) for name, place in places.items() if name not in self._kept]
        at_once(lambda one: self._begin(*one), missing)

    def _begin(self, name: str, place: EntryPlace | None) -> None:
        for attempt in attempts(self._timeout_s):
            with attempt:
                self._begin_once(name, place)

    def _begin_once(self, name: str, place: EntryPlace | None) -> None:
        cursor = self._kept[name] = self._cursors.cursor(name, self.name)
        stands = cursor.place()
        if place is not None and stands > place:
            logger.warning(
                "The subscription %s on %s stands at %s, and this query has still to read from %s "
                "on: that is not kept. Does another query use it? Give each one of its own.",
                self.name,
                name,
                place_text(stands),
                place_text(place),
                extra={"topic": name, "subscription": self.name},
            )
        self._move(name, place)

    def move(self, places: Mapping[str, EntryPlace | None]) -> None:
        """Keep only what is at the places and behind them. What fails is logged: the next epoch
        moves it further, and nothing that a query reads depends on it."""
        for name, error in at_once(lambda one: self._try(*one), list(places.items())):
            if error is not None:
                logger.warning(
                    "The subscription %s on %s stays where it is: %s",
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
        if place is not None and place[1] > 1:
            cursor.acknowledge(MessageId(place[0], place[1] - 2))
        else:
            cursor.place()
