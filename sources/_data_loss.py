"""Detects deleted entries that a query has not read yet, by their ids alone; gaps are no loss.

A topic numbers its entries in ledgers, whose numbers only grow in a cluster. Entries are deleted
from the front, a ledger at a time, so no entry after a place is lost as long as the topic begins
there or earlier.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Protocol

from eos.client import Bounds
from eos.errors import DataLost
from eos.ids import EntryPlace
from eos.sources._offsets import place_after, place_text

logger = logging.getLogger(__name__)

_HINT = (
    "They were deleted by retention, time to live, a backlog quota or by hand, or the topic was "
    "recreated. Set failOnDataLoss=false to continue with the remaining entries."
)


class BoundsLookup(Protocol):
    """The methods of ``SourceTopics`` that are used here."""

    def reopen(self, names: list[str]) -> dict[str, Bounds]:
        """Return the bounds that a new subscription sees."""

    def reaches(self, entries: Mapping[str, EntryPlace]) -> dict[str, bool]:
        """Whether each partition has, or had, the entry."""


class LossGuard:
    """Reports losses: raises an error, or warns and counts them if failOnDataLoss is false."""

    def __init__(self, *, fail: bool) -> None:
        self._fail = fail
        self.losses = 0

    def report(self, loss: str, topic: str, *, hint: str = _HINT) -> None:
        """Report a certain or possible loss.

        Raises:
            DataLost: unless this only warns.
        """
        if self._fail:
            raise DataLost(loss, hint=hint)
        self.losses += 1
        logger.warning("%s", loss, extra={"topic": topic, "losses": self.losses})

    def starts(
        self,
        places: Mapping[str, EntryPlace | None],
        bounds: Mapping[str, Bounds],
        topics: BoundsLookup,
    ) -> dict[str, EntryPlace]:
        """Return where the next epoch begins in each partition of ``bounds``: an existing place, so
        that the epoch can be read again and losses are detected then.

        Args:
            places: up to where the query has read; a missing partition is new.

        Raises:
            DataLost: entries after a place were deleted, or may have been.
        """
        for name in sorted(places.keys() - bounds.keys()):
            self.report(
                f"{name} was deleted, or its topic was recreated. The query has read it up to "
                f"{place_text(places[name])}.",
                name,
            )
        places = dict(places) | dict.fromkeys(self._recreated(places, bounds, topics))
        moved = [name for name, one in bounds.items() if _is_moved(places.get(name), one.first)]
        fresh = {**bounds, **(topics.reopen(moved) if moved else {})}
        return {
            name: self._start(name, places.get(name), one.first, fresh[name].first)
            for name, one in bounds.items()
            if name in fresh
        }

    def _recreated(
        self,
        places: Mapping[str, EntryPlace | None],
        bounds: Mapping[str, Bounds],
        topics: BoundsLookup,
    ) -> list[str]:
        """Report and return partitions that never had entries which the query has read.

        The last id alone proves nothing: for a while after a broker's restart it is an earlier one
        (measured).
        """
        read = {
            name: (place[0], place[1] - 1)
            for name, one in bounds.items()
            if (place := places.get(name)) is not None
            and not _is_first_of_ledger(place)
            and (place_after(one.last_id) or one.first) < place
        }
        recreated = [name for name, reaches in topics.reaches(read).items() if not reaches]
        for name in recreated:
            self.report(
                f"{name} ends before {place_text(places[name])}, up to where the query has read: "
                "it was recreated, or belongs to another cluster.",
                name,
            )
        return recreated

    def _start(
        self, name: str, place: EntryPlace | None, first: EntryPlace, fresh: EntryPlace
    ) -> EntryPlace:
        if place is None or _is_first_of_ledger(place):
            # An empty ledger disappears without a trace when a topic is reloaded (measured).
            return max(place or fresh, fresh)
        if first > place:
            self.report(
                f"Entries of {name} from {place_text(place)} up to {place_text(first)} no longer "
                "exist, and may not have been read.",
                name,
            )
        return max(place, fresh)


def _is_first_of_ledger(place: EntryPlace) -> bool:
    return place[1] == 0


def _is_moved(place: EntryPlace | None, first: EntryPlace) -> bool:
    """Whether a deletion has moved an open subscription: then only a new subscription sees where
    the remaining entries begin."""
    return not _is_first_of_ledger(first) and (place is None or first >= place)
