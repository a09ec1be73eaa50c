"""Open transactions that hold a query back: a batch read waits for them, a stream says so.

Readers get nothing from the first entry of an open transaction on. So a batch read up to a place or
a time behind it is not complete yet, and it must not look complete.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, NamedTuple, Protocol

from eos.admin import OpenTransaction
from eos.errors import ConfigurationError, EosError, TransactionStillOpen
from eos.ids import EntryPlace, MessageId, TxnId
from eos.retry import Patience
from eos.sources._offsets import place_text

logger = logging.getLogger(__name__)

_AFTER_S: Final = 60.0
_AGAIN_S: Final = 300.0
_EVERY_S: Final = 10.0
_ISO: Final = "%Y-%m-%dT%H:%M:%SZ"
_LOOKED_AT: Final = 64
"""Partitions in one look, each 10 s at most: most that stand still have nothing new."""


class AskedTopics(Protocol):
    """What is asked of a planner."""

    def undecided(self, ends: Mapping[str, EntryPlace | None]) -> dict[str, EntryPlace]:
        """The partitions with an open transaction before their ends, and where it begins."""

    def open_transactions(self) -> list[OpenTransaction] | None:
        """The cluster's, the oldest first; None without the admin API."""

    def begun_at(self, topic: str, txn: TxnId) -> MessageId | None:
        """The first entry of an open transaction in an exact topic; None: it has none there."""


def wait_for_time(time_ms: int | None, wait_s: float) -> None:
    """Until a time has passed at which a read ends, by this machine's clock.

    Raises:
        ConfigurationError: it is further ahead than ``wait_s``.
    """
    ahead_s = 0.0 if time_ms is None else time_ms / 1000 - time.time()
    if ahead_s > wait_s:
        raise ConfigurationError(
            f"endingTime is {_moment(time_ms)}, {ahead_s:.0f} s from now: messages published until "
            "then would be missing.",
            hint="Read when it has passed, let endingWaitS wait for it, or leave endingTime out: "
            "the read then ends at the current end of the topic.",
        )
    if ahead_s > 0:
        time.sleep(ahead_s)


def wait_until_decided(
    ends: Mapping[str, EntryPlace | None], topics: AskedTopics, *, wait_s: float, fail: bool
) -> None:
    """Until no transaction is open before ``ends``.

    Raises:
        TransactionStillOpen: one is after ``wait_s``, and ``fail`` is set; names it.
    """
    patience = Patience(wait_s)
    while undecided := topics.undecided(ends):
        if patience.is_over:
            break
        patience.pause()
        ends = {name: ends[name] for name in undecided}
    else:
        return
    held = _named(undecided, topics)
    if fail:
        raise TransactionStillOpen(
            f"The read can't be complete: {held}. Waited {wait_s:.0f} s.",
            hint="Read again when it has ended, wait longer (endingWaitS), or read up to it "
            "(onOpenTransaction=stop). `eos recovery orphans` shows open transactions.",
        )
    logger.warning("The read ends early: %s.", held, extra={"topics": sorted(undecided)})


class _Standing(NamedTuple):
    place: EntryPlace | None
    since: float
    looked_at: float


class StandstillWatch:
    """Looks why partitions of a stream stand still, and warns of open transactions.

    Args:
        after_s: for how long one has to stand. ``again_s``: how long until it is looked at again.
    """

    def __init__(self, *, after_s: float = _AFTER_S, again_s: float = _AGAIN_S) -> None:
        self._after_s = after_s
        self._again_s = again_s
        self._every_s = min(_EVERY_S, again_s)
        self._looked_at = -math.inf
        self._standing: dict[str, _Standing] = {}

    def look(self, places: Mapping[str, EntryPlace | None], topics: AskedTopics) -> None:
        """The query stands at ``places`` now; what can't be asked is left for the next time."""
        now = time.monotonic()
        old = self._standing
        self._standing = {
            name: old[name]
            if name in old and old[name].place == place
            else _Standing(place, now, now + self._after_s - self._again_s)
            for name, place in places.items()
        }
        due = [
            name
            for name, one in self._standing.items()
            if now - one.since >= self._after_s and now - one.looked_at >= self._again_s
        ]
        due = sorted(due, key=lambda name: self._standing[name].looked_at)[:_LOOKED_AT]
        if not due or now - self._looked_at < self._every_s:
            return
        self._looked_at = now
        for name in due:
            self._standing[name] = self._standing[name]._replace(looked_at=now)
        try:
            undecided = topics.undecided(dict.fromkeys(due))
            if undecided:
                since = min(self._standing[name].since for name in undecided)
                self._warn(undecided, now - since, topics)
        except EosError as error:
            logger.info("Why partitions stand still is not known: %s", error)

    def _warn(self, undecided: Mapping[str, EntryPlace], for_s: float, topics: AskedTopics) -> None:
        logger.warning(
            "The query has read nothing of %s for %.0f s: %s. It goes on when that has ended; "
            "`eos recovery orphans` shows its owner.",
            next(iter(sorted(undecided)))
            if len(undecided) == 1
            else f"{len(undecided)} partitions",
            for_s,
            _named(undecided, topics),
            extra={"topics": sorted(undecided)},
        )


def _named(undecided: Mapping[str, EntryPlace], topics: AskedTopics) -> str:
    """What holds partitions back, the first of them by name."""
    name, place = min(undecided.items())
    more = f" (and {len(undecided) - 1} partitions more)" if len(undecided) > 1 else ""
    where = f"{name} from {place_text(place)} on{more}"
    try:
        known = topics.open_transactions()
        found = None if known is None else _first_in(name, known, topics)
    except EosError as error:
        return f"a transaction is open in {where} (which one is not known: {error.message})"
    if known is None:
        return f"a transaction is open in {where} (with adminUrl it has a number)"
    if found is None:
        return f"a transaction that no coordinator knows is open in {where}: `eos recovery heal`"
    return (
        f"transaction {found.txn} is open in {where}, since {found.opened_at:{_ISO}}; the broker "
        f"aborts it at {found.expires_at:{_ISO}}"
    )


def _first_in(
    topic: str, known: list[OpenTransaction], topics: AskedTopics
) -> OpenTransaction | None:
    """The one whose entries begin first: it is the one that holds readers back."""
    here = [one for one in known if topic in one.topics]
    begun = [(topics.begun_at(topic, one.txn), one) for one in here]
    at = [(place, one) for place, one in begun if place is not None]
    return min(at, key=lambda pair: pair[0])[1] if at else next(iter(here), None)


def _moment(time_ms: int | None) -> str:
    return f"{datetime.fromtimestamp((time_ms or 0) / 1000, UTC):{_ISO}}"
