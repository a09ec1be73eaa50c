"""The durable subscription of a query: it shows the backlog, and keeps what is not read yet.

Nothing is read through it. It moves when Spark has committed an epoch, and stays one entry behind:
so the ledger of the last entry that was read is kept, and with it the proof that nothing behind it
was deleted (a ledger that is all acknowledged goes away when the topic is loaded anew: measured).
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Collection, Mapping
from typing import Final, Protocol

from eos.client import SubscriptionCursor
from eos.errors import EosError
from eos.ids import EntryPlace, MessageId
from eos.parallel import parallel_map
from eos.retry import attempts
from eos.sources._offsets import place_text

logger = logging.getLogger(__name__)

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
        self._begun: dict[str, EntryPlace] = {}

    def keep(
        self, places: Mapping[str, EntryPlace], unknown: Collection[str] = ()
    ) -> dict[str, EntryPlace]:
        """Make it where it is missing, and keep what is at the places and behind them. Topics
        move: who is refused meanwhile asks again.

        Args:
            unknown: those of ``places`` of which the checkpoint knows nothing: they begin with the
                topic's first entry.

        Returns:
            ``places``; where a subscription of the query's own stands further in an unknown one,
            that is its place: older releases forgot where they stopped in a topic that they left.

        Raises:
            EosError: the broker refuses, or does not answer.
        """
        missing = [
            (name, place, name in unknown)
            for name, place in places.items()
            if name not in self._kept
        ]
        parallel_map(lambda one: self._begin(*one), missing)
        begun = {name: self._begun[name] for name in unknown if name in self._begun}
        return {**places, **begun}

    def _begin(self, name: str, place: EntryPlace, is_unknown: bool) -> None:
        for attempt in attempts(self._timeout_s):
            with attempt:
                self._begin_once(name, place, is_unknown)

    def _begin_once(self, name: str, place: EntryPlace, is_unknown: bool) -> None:
        cursor = self._kept[name] = self._cursors.cursor(name, self.name)
        stands = cursor.place()
        # At the beginning of a ledger nothing was read of it: an empty one before it is gone.
        if stands > place and stands[1] > 0 and is_unknown and self.name.startswith(PREFIX):
            self._begun[name] = stands
            logger.warning(
                "The query has read %s before, as its subscription %s shows, and goes on there: "
                "from %s. The checkpoint does not say where it stopped: some messages may come "
                "twice.",
                name,
                self.name,
                place_text(stands),
                extra={"topic": name, "subscription": self.name},
            )
            return
        if stands > place:
            logger.warning(
                "The subscription %s on %s stands at %s, and this query has still to read from %s "
                "on: that is not kept. It was moved by another query of the same subscription, by "
                "time to live, a backlog quota or by hand, or the checkpoint is an older one.",
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
        for name, error in parallel_map(lambda one: self._try(*one), list(places.items())):
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
