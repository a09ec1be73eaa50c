"""Handles open transactions that block a query: a batch read waits for them, a stream warns."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Final, NamedTuple, Protocol

from eos.admin import OpenTransaction
from eos.client import Bounds
from eos.errors import ConfigurationError, EosError, TransactionStillOpen
from eos.ids import EntryPlace, MessageId, TxnId
from eos.retry import Patience
from eos.sources._offsets import place_text

logger = logging.getLogger(__name__)

_LOOK_S: Final = 10.0
_WARN_S: Final = 60.0
_AGAIN_S: Final = 300.0
_EVERY_S: Final = 10.0
_ISO: Final = "%Y-%m-%dT%H:%M:%SZ"
# Partitions that are checked at once, each for 10 s at most: most idle ones just have no news.
_MAX_CHECKED: Final = 64


class TransactionLookup(Protocol):
    """The methods of ``SourceTopics`` that are used here."""

    def final_bounds(self, names: Iterable[str]) -> Mapping[str, Bounds]:
        """Find the ends up to which the broker delivers, where it states earlier ones."""

    def undecided(self, ends: Mapping[str, EntryPlace | None]) -> dict[str, EntryPlace]:
        """Return the partitions with an open transaction before their ends, and where it begins."""

    def open_transactions(self) -> list[OpenTransaction] | None:
        """Return the cluster's, the oldest first; None without the admin API."""

    def first_entry_of(self, topic: str, txn: TxnId) -> MessageId | None:
        """Return the first entry of an open transaction in an exact topic, or None."""


def wait_for_time(time_ms: int | None, wait_s: float) -> None:
    """Wait until the time at which a read ends has passed, by this machine's clock.
    ConfigurationError if it is further ahead than ``wait_s``.
    """
    if time_ms is None:
        return
    ahead_s = time_ms / 1000 - time.time()
    if ahead_s > wait_s:
        raise ConfigurationError(
            f"endingTime is {datetime.fromtimestamp(time_ms / 1000, UTC):{_ISO}}, {ahead_s:.0f} s "
            "from now: messages published until then would be missing.",
            hint="Read after that time, or increase endingWaitS, or leave endingTime out: the read "
            "then ends at the current end of the topic.",
        )
    if ahead_s > 0:
        time.sleep(ahead_s)


def wait_until_decided(
    ends: Mapping[str, EntryPlace | None], topics: TransactionLookup, *, wait_s: float, fail: bool
) -> None:
    """Wait until no transaction is open before ``ends``.

    Raises:
        TransactionStillOpen: one is open after ``wait_s``, and ``fail`` is set; names it.
    """
    # Readers get no entries from the first entry of an open transaction on: a batch read up to a
    # later place is not complete yet, and must not look complete.
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
            hint="Read again after it has ended, wait longer (endingWaitS), or read up to it "
            "(onOpenTransaction=stop). `eos recovery orphans` shows open transactions.",
        )
    logger.warning("The read ends early: %s.", held, extra={"topics": sorted(undecided)})


class _Idle(NamedTuple):
    place: EntryPlace | None
    since: float
    due_at: float


class StandstillWatch:
    """Looks at partitions of a stream that make no progress: whether the broker states an old end,
    and whether a transaction is open, of which it warns.

    ``look_s``: the time without progress until the first look. ``warn_s``: until the first warning.
    ``again_s``: from then on, until the next one.
    """

    def __init__(
        self, *, look_s: float = _LOOK_S, warn_s: float = _WARN_S, again_s: float = _AGAIN_S
    ) -> None:
        self._look_s = look_s
        self._warn_s = warn_s
        self._again_s = again_s
        self._every_s = min(_EVERY_S, look_s)
        self._checked_at = -math.inf
        self._partitions: dict[str, _Idle] = {}

    def check(self, places: Mapping[str, EntryPlace | None], topics: TransactionLookup) -> None:
        """Check partitions, given the query's current ``places``."""
        # A check that fails is repeated later.
        now = time.monotonic()
        old = self._partitions
        self._partitions = {
            name: old[name]
            if name in old and old[name].place == place
            else _Idle(place, now, now + self._look_s)
            for name, place in places.items()
        }
        due = [name for name, one in self._partitions.items() if now >= one.due_at]
        # The rest is checked next time: first those that have waited longest.
        due = sorted(due, key=lambda name: self._partitions[name].due_at)[:_MAX_CHECKED]
        if not due or now - self._checked_at < self._every_s:
            return
        self._checked_at = now
        blocked = []
        for name in due:
            one = self._partitions[name]
            if (warn_at := one.since + self._warn_s) <= now:
                blocked.append(name)
                warn_at = now + self._again_s
            self._partitions[name] = one._replace(due_at=warn_at)
        try:
            topics.final_bounds(due)
            undecided = topics.undecided(dict.fromkeys(blocked)) if blocked else {}
            if undecided:
                since = min(self._partitions[name].since for name in undecided)
                self._warn(undecided, now - since, topics)
        except EosError as error:
            logger.info("It is not known why partitions make no progress: %s", error)

    def _warn(
        self, undecided: Mapping[str, EntryPlace], for_s: float, topics: TransactionLookup
    ) -> None:
        logger.warning(
            "The query has read nothing of %s for %.0f s: %s. It continues after that has ended; "
            "`eos recovery orphans` shows its owner.",
            next(iter(sorted(undecided)))
            if len(undecided) == 1
            else f"{len(undecided)} partitions",
            for_s,
            _named(undecided, topics),
            extra={"topics": sorted(undecided)},
        )


def _named(undecided: Mapping[str, EntryPlace], topics: TransactionLookup) -> str:
    """Describe the transaction that blocks the first of the partitions."""
    name, place = min(undecided.items())
    more = f" (and {len(undecided) - 1} partitions more)" if len(undecided) > 1 else ""
    where = f"{name} from {place_text(place)} on{more}"
    try:
        known = topics.open_transactions()
        found = None if known is None else _first_in(name, known, topics)
    except EosError as error:
        return f"a transaction is open in {where} (its id is unknown: {error.message})"
    if known is None:
        return f"a transaction is open in {where} (set adminUrl to see its id)"
    if found is None:
        return f"a transaction unknown to coordinators is open in {where}: run `eos recovery heal`"
    return (
        f"transaction {found.txn} is open in {where}, since {found.opened_at:{_ISO}}; the broker "
        f"aborts it at {found.expires_at:{_ISO}}"
    )


def _first_in(
    topic: str, known: list[OpenTransaction], topics: TransactionLookup
) -> OpenTransaction | None:
    # The one whose entries begin first blocks readers.
    here = [one for one in known if topic in one.topics]
    first = [(topics.first_entry_of(topic, one.txn), one) for one in here]
    at = [(place, one) for place, one in first if place is not None]
    return min(at, key=lambda pair: pair[0])[1] if at else next(iter(here), None)
