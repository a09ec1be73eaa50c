"""Whether what a query has still to read is all there; ids alone decide, and gaps are no loss.

A topic numbers its entries in ledgers, whose numbers only grow in a cluster. Entries are deleted
from the front, a ledger at a time, so a place is safe as long as the topic begins at it or before.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Protocol

from eos.client import Bounds
from eos.errors import DataLost
from eos.ids import EntryPlace
from eos.sources._offsets import behind, place_text

logger = logging.getLogger(__name__)

_HINT = (
    "Deleted by retention, time to live, a backlog quota or by hand, or the topic was recreated. "
    "With failOnDataLoss=false the query goes on with what is there."
)


class PlannedTopics(Protocol):
    """What is asked of a planner."""

    def reopen(self, names: list[str]) -> dict[str, Bounds]:
        """The bounds as somebody sees them who comes now."""

    def reaches(self, entries: Mapping[str, EntryPlace]) -> dict[str, bool]:
        """Whether each partition is so long that the entry is in it, or was."""


class LossGuard:
    """Says what is lost: raises, or warns and counts, as the option failOnDataLoss wants it."""

    def __init__(self, *, fail: bool) -> None:
        self._fail = fail
        self.losses = 0

    def lost(self, what: str, topic: str, *, hint: str = _HINT) -> None:
        """Something is, or may be.

        Raises:
            DataLost: unless this only warns.
        """
        if self._fail:
            raise DataLost(what, hint=hint)
        self.losses += 1
        logger.warning("%s", what, extra={"topic": topic, "losses": self.losses})

    def starts(
        self,
        places: Mapping[str, EntryPlace | None],
        bounds: Mapping[str, Bounds],
        topics: PlannedTopics,
    ) -> dict[str, EntryPlace]:
        """Where the next epoch begins in each partition of ``bounds``: a place that is there, so
        that the epoch can be read again and compared with what is there then.

        Args:
            places: where the query stands; a partition that is missing is new.

        Raises:
            DataLost: entries behind a place have been deleted, or may have been.
        """
        for name in sorted(places.keys() - bounds.keys()):
            self.lost(
                f"{name} was deleted, or its topic was recreated. It was to be read from "
                f"{place_text(places[name])} on.",
                name,
            )
        places = dict(places) | dict.fromkeys(self._made_anew(places, bounds, topics))
        moved = [name for name, one in bounds.items() if _is_moved(places.get(name), one.first)]
        fresh = {**bounds, **(topics.reopen(moved) if moved else {})}
        return {
            name: self._start(name, places.get(name), one.first, fresh[name].first)
            for name, one in bounds.items()
            if name in fresh
        }

    def _made_anew(
        self,
        places: Mapping[str, EntryPlace | None],
        bounds: Mapping[str, Bounds],
        topics: PlannedTopics,
    ) -> list[str]:
        """PlannedTopics that never were as long as the query has read them.

        The last id alone is no proof: for a while after a broker's restart it is an earlier one
        (measured).
        """
        read = {
            name: (place[0], place[1] - 1)
            for name, one in bounds.items()
            if (place := places.get(name)) is not None
            and not _is_first_of_ledger(place)
            and (behind(one.last_id) or one.first) < place
        }
        anew = [name for name, reaches in topics.reaches(read).items() if not reaches]
        for name in anew:
            self.lost(
                f"{name} ends before {place_text(places[name])}, where the query goes on: it was "
                "recreated, or it is another cluster's.",
                name,
            )
        return anew

    def _start(
        self, name: str, place: EntryPlace | None, first: EntryPlace, fresh: EntryPlace
    ) -> EntryPlace:
        if place is None or _is_first_of_ledger(place):
            # An empty ledger goes away without a trace when a topic is loaded anew (measured).
            return max(place or fresh, fresh)
        if first > place:
            self.lost(
                f"Entries of {name} from {place_text(place)} on, up to {place_text(first)}, "
                "are not there any more, and may never have been read.",
                name,
            )
        return max(place, fresh)


def _is_first_of_ledger(place: EntryPlace) -> bool:
    return place[1] == 0


def _is_moved(place: EntryPlace | None, first: EntryPlace) -> bool:
    """Whether a kept subscription has been moved by a deletion: then the broker says where what is
    left begins only to those who come anew."""
    return not _is_first_of_ledger(first) and (place is None or first >= place)
