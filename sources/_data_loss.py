"""Places that a query can't continue from: of deleted entries, and in topics that it has left."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from eos.admin import AdminClient, expiry
from eos.client import Bounds
from eos.delta.folder import Folder
from eos.errors import ConfigurationError, DataLost, EosError, TopicNotFound
from eos.ids import EntryPlace, TopicName
from eos.sources._offsets import Offset, place_after, place_text
from eos.sources._source_options import SourceOptions
from eos.waiting import parallel_map

A = TypeVar("A")
T = TypeVar("T")

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

    # Ids alone show a loss. A topic numbers its entries in ledgers, whose numbers only grow in a
    # cluster, and entries are deleted from the front, a ledger at a time. So no entry after a place
    # is lost as long as the topic begins there or earlier; gaps are no loss.

    def __init__(self, *, fail: bool) -> None:
        self._fail = fail
        self.losses = 0
        self._offset: Offset | None = None
        self._reported: set[str] = set()  # at this offset

    def begin(self, offset: Offset) -> None:
        """Begin to look for losses behind an offset. Those that were reported at the same one are
        not reported again: an idle query asks all the time."""
        if offset != self._offset:
            self._offset = offset
            self._reported.clear()

    def report(self, loss: str, topic: str, *, hint: str = _HINT) -> None:
        """Report a certain or possible loss: raise DataLost, or warn."""
        if self._fail:
            raise DataLost(loss, hint=hint)
        if loss in self._reported:
            return
        self._reported.add(loss)
        self.losses += 1
        logger.warning("%s", loss, extra={"topic": topic, "losses": self.losses})

    def report_deleted(self, topic: str) -> None:
        """Report that a partition was deleted after entries of it were planned to be read."""
        self.report(f"{topic} was deleted before all planned entries of it were read.", topic)

    def starts(
        self,
        places: Mapping[str, EntryPlace | None],
        bounds: Mapping[str, Bounds],
        topics: BoundsLookup,
    ) -> dict[str, EntryPlace]:
        """Return where the next epoch begins in each partition of ``bounds``: an existing place, so
        that the epoch can be read again and losses are detected then.

        ``places``: up to where the query has read; a missing partition is new.

        Raises:
            DataLost: entries after a place were deleted, or may have been.
        """
        for name in sorted(places.keys() - bounds.keys()):
            self.report(
                f"{name} was deleted, or its topic was recreated. The query has read it up to "
                f"{place_text(places[name])}.",
                name,
            )
        # A recreated partition is a new one: it is read from its beginning.
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
        # Partitions that never had entries which the query has read. The last id alone proves
        # nothing: for a while after a broker's restart it is an earlier one (measured).
        read = {
            name: (place[0], place[1] - 1)
            for name, one in bounds.items()
            if (place := places.get(name)) is not None
            and not _is_first_of_ledger(place)
            and (place_after(one.last_id) or one.first) < place
        }
        # A query would wait forever for a place that its topic never had.
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
        # Deleted before the epoch: they would be missing without a word.
        if first > place:
            self.report(
                f"Entries of {name} from {place_text(place)} up to {place_text(first)} no longer "
                "exist, and may not have been read.",
                name,
            )
        # The old ledger may be gone when the epoch runs again, which looks like a loss.
        return max(place, fresh)


def _is_first_of_ledger(place: EntryPlace) -> bool:
    return place[1] == 0


def _is_moved(place: EntryPlace | None, first: EntryPlace) -> bool:
    # A deletion moves an open subscription: then only a new one sees where the remaining entries
    # begin.
    return not _is_first_of_ledger(first) and (place is None or first >= place)


def expiry_reasons(admin: AdminClient, topics: Collection[TopicName]) -> list[str]:
    """Return, in words, the policies that delete messages in spite of a subscription."""
    try:
        settings = admin.broker_settings()
    except EosError:  # only superusers see them
        settings = {}
    namespaces = {topic.namespace_name for topic in topics}
    policies = {namespace: admin.policies(namespace) for namespace in sorted(namespaces)}

    def asked(topic: TopicName) -> list[str]:
        return _expiry_reasons(admin, topic, policies[topic.namespace_name], settings)

    found: dict[str, list[str]] = {}
    ordered = sorted(topics)
    for topic, reasons in zip(ordered, parallel_map(asked, ordered), strict=True):
        for reason in reasons:
            found.setdefault(reason, []).append(str(topic))
    return [
        f"{reason} ({', '.join(names[:3])}{', ...' if len(names) > 3 else ''})"
        for reason, names in found.items()
    ]


def _expiry_reasons(
    admin: AdminClient, topic: TopicName, own: Mapping[str, Any], settings: Mapping[str, str]
) -> list[str]:
    try:
        # With applied=true, brokers add their defaults to the cached policies (measured, 4.2).
        found = expiry(own, settings, admin.backlog_quotas(topic), admin.message_ttl_s(topic))
    except EosError:  # topic policies may be disabled, or not visible to this role
        found = expiry(own, settings)
    return (
        [f"messages expire {found.ttl_s} s after they were sent"] * (found.ttl_s > 0)
        + ["a backlog quota deletes unread messages"] * bool(found.evicting)
        + [f"an idle subscription is deleted after {found.subscription_min} min"]
        * (found.subscription_min > 0)
    )


def known_places(
    offset: Offset, there: Collection[str], options: SourceOptions, guard: LossGuard
) -> tuple[dict[str, EntryPlace | None], dict[str, EntryPlace | None]]:
    """Return up to where the query has read: in the partitions that it reads, including deleted
    ones, and in those that it no longer reads.

    ``there``: the partitions that are read now.

    Raises:
        DataLost: a topic is no longer read, and droppedTopics does not name it; unless ``guard``
            only warns.
    """
    # The places stay in the offsets of all later epochs, and the query's subscription keeps the
    # topic's new messages: if it is read again, the query continues there, even if startingOffsets
    # says otherwise.
    gone = [
        name
        for name in sorted(offset.ends.keys() - set(there))
        if not options.reads(TopicName.parse(name))
    ]
    _report(gone, there, options, guard)
    if back := sorted(offset.left.keys() & set(there)):
        logger.info("%s: read again, from where the query stopped.", ", ".join(back))
    known = {**offset.left, **offset.ends}
    # A topic that was deleted while the query read it is not left: its loss is reported once, and a
    # later topic of the same name is a new one.
    left = {name: known[name] for name in {*offset.left, *gone} - set(there)}
    return {name: place for name, place in known.items() if name not in left}, left


def check_named(offset: Offset, options: SourceOptions) -> None:
    """Raise ConfigurationError unless the query's options name all topics and tables of an
    epoch."""
    # A checkpoint may be writable by others, so it must not decide where the query's token is sent,
    # and what is read.
    for name, span in offset.spans.items():
        if not span.is_empty and not _is_named(options, name):
            raise ConfigurationError(
                f"The checkpoint has an epoch with entries of {name!r}, which the query's options "
                "do not name.",
                hint="If the query has read this topic before, name it in droppedTopics to finish "
                "the epoch.",
            )
    past, wanted = offset.history, options.history
    if past is None or past.is_empty or (wanted and Folder(wanted).uri == past.table):
        return
    raise ConfigurationError(
        f"The checkpoint has an epoch with files of {past.table!r}, which the query's options do "
        "not name.",
        hint="Set the option history as before, until all of it is read.",
    )


def _is_named(options: SourceOptions, name: str) -> bool:
    try:
        topic = TopicName.parse(name)
    except ConfigurationError:
        return False
    return options.reads(topic) or options.drops(topic)


def _report(
    gone: Collection[str], there: Collection[str], options: SourceOptions, guard: LossGuard
) -> None:
    # Dropped topics are logged only; others are a loss.
    dropped = [name for name in gone if options.drops(TopicName.parse(name))]
    if dropped:
        logger.info("%s: no longer read, because of droppedTopics.", ", ".join(dropped))
    # A partition is reported by its own name if other partitions of its topic are still read.
    stay = {TopicName.parse(name).base for name in there}
    bases = {name: TopicName.parse(name).base for name in gone if name not in dropped}
    names = sorted({name if base in stay else str(base) for name, base in bases.items()})
    if names:
        guard.report(
            f"The query has read {', '.join(names)}, which its options no longer name.",
            names[0],
            hint=f"If this is intended, set droppedTopics={','.join(names)}. The query keeps its "
            "places there, and continues from them if the topics are read again. With "
            "failOnDataLoss=false this is a warning.",
        )


def existing_only(
    names: Sequence[str], parse: Callable[[str], A], ask: Callable[[A], T]
) -> dict[str, T]:
    """Return the answers about partitions, without those that were deleted."""

    def asked(one: A) -> T | None:
        try:
            return ask(one)
        except TopicNotFound:
            return None

    found = zip(names, parallel_map(asked, [parse(name) for name in names]), strict=True)
    return {name: one for name, one in found if one is not None}
