"""Looks up the topics of a query on the driver: their partitions, bounds, ledgers, transactions."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from eos.admin import Ledger, OpenTransaction, StoredLedger
from eos.client import Bounds, PulsarClient, SubscriptionCursor, TopicBounds
from eos.errors import BrokerError, ConfigurationError, ProtocolError, TopicNotFound
from eos.ids import EntryPlace, MessageId, TopicName, TxnId
from eos.schemas.reading import SchemaVersion
from eos.sources._data_loss import existing_only, expiry_reasons
from eos.sources._entry_ranges import (
    RowsPerEntry,
    first_published,
    next_entry,
    unfinished_before,
)
from eos.sources._offsets import (
    LATEST,
    PlaceOption,
    check_order,
    parse_offsets,
    parse_times,
    place_after,
    starting_place,
)
from eos.sources._open_transactions import wait_for_time
from eos.sources._source_options import SourceOptions
from eos.sources._time_window import TimeWindow
from eos.sources._value_format import (
    AUTO,
    BYTES,
    ValueFormat,
    lost_fields,
    newest_versions,
    value_format,
)
from eos.waiting import parallel_map
from eos.wire.batch import Entry

T = TypeVar("T")

logger = logging.getLogger(__name__)


class SourceTopics:
    """The topics of ``options``. Each method raises an ``EosError`` if a topic can't be queried."""

    # Connections and subscriptions are kept between calls: a partition costs one round trip, and no
    # separate connection.

    def __init__(self, options: SourceOptions, *, exclusive_subscription: bool = False) -> None:
        self._options = options
        self._is_exclusive = exclusive_subscription
        self._client: PulsarClient = options.client.make()
        self._tails: dict[str, TopicBounds] = {}
        self._ledgers: dict[str, list[Ledger]] = {}
        self._lossless: dict[TopicName, SchemaVersion | None] = {}  # newest, with all fields
        self._unreadable: set[str] = set()
        self._unsearchable: set[str] = set()  # in which a publish time can't be looked for
        self._rows_per_entry = RowsPerEntry(self._rows_of)

    def partitions(self) -> list[str]:
        """Return the exact names of all partitions now; TopicNotFound if a topic does not exist."""
        pattern = self._options.pattern
        if pattern is not None:
            return self._matching(pattern)
        counted = parallel_map(self._partitions_of, self._options.topic_names)
        # Each once: a topic and one of its partitions may both be named.
        return list(dict.fromkeys(str(name) for names in counted for name in names))

    def _partitions_of(self, topic: TopicName) -> Sequence[TopicName]:
        if topic.partition_index is not None:
            return [topic]
        try:
            return topic.partitions(self._client.partition_count(str(topic)))
        except TopicNotFound as error:
            error.hint = (
                "Create it. If it was deleted while the query ran, its messages are lost: after it "
                "is recreated, set failOnDataLoss=false to read the new one from its beginning."
            )
            raise

    def _matching(self, pattern: tuple[str, re.Pattern[str]]) -> list[str]:
        namespace, local = pattern
        found = self._client.topics(namespace)
        names = [self._maybe_parse(name) for name in found if _may_match(name, local)]
        return [
            str(name)
            for name in names
            if name is not None
            and local.fullmatch(name.base.local)
            # Receipt topics, and the broker's own.
            and not name.local.startswith("__")
            and not self._options.drops(name)
        ]

    def _maybe_parse(self, name: str) -> TopicName | None:
        # Other clients can create topics that can't be read.
        try:
            return TopicName.parse(name)
        except ConfigurationError as error:
            if name not in self._unreadable:
                self._unreadable.add(name)
                logger.warning("A topic of the namespace can't be read: %s", error.message)
            return None

    def values(self) -> ValueFormat:
        """Return the format of the topics' values, by the schemas that the registry has now;
        TopicNotFound if no topic matches the pattern.
        """
        options = self._options
        if options.value_schema == BYTES:
            return ValueFormat(None, None, options.mode)
        topics = self._bases()
        if not topics and options.own_schema is None:
            raise TopicNotFound(
                f"No topic matches {options.topics_pattern}, so the schema is unknown.",
                hint='Create one, set schemaDefinition, or read bytes: schema="bytes".',
            )
        return value_format(
            self._client,
            topics,
            own=options.own_schema,
            mode=options.mode,
            allow_different=options.allow_different_topic_schemas,
        )

    def lost_fields(self) -> set[str]:
        """Return the paths of fields that only earlier schemas have; none if options name one."""
        if self._options.value_schema != AUTO or self._options.allow_different_topic_schemas:
            return set()
        newest = newest_versions(self._client, self._bases())
        new = newest.items() - self._lossless.items()
        lost = set[str]().union(*(lost_fields(self._client, *one) for one in new))
        if not lost:
            self._lossless = newest
        return lost

    def _bases(self) -> tuple[TopicName, ...]:
        if self._options.pattern is None:
            return self._options.topic_names
        return tuple(dict.fromkeys(TopicName.parse(name).base for name in self.partitions()))

    def bounds(self, names: Iterable[str]) -> dict[str, Bounds]:
        """Return where each partition begins and ends now; partitions that were just deleted are
        left out."""
        return existing_only(list(names), self._tail, TopicBounds.bounds)

    def final_bounds(self, names: Iterable[str]) -> dict[str, Bounds]:
        """Return ``bounds`` up to what the broker delivers, which may be more than it states."""
        return existing_only(list(names), self._tail, TopicBounds.final_bounds)

    def reaches(self, entries: Mapping[str, EntryPlace]) -> dict[str, bool]:
        """Whether each partition has, or had, the entry."""
        return self._each(entries, lambda tail: tail.reaches(entries[tail.topic]))

    def reopen(self, names: Iterable[str]) -> dict[str, Bounds]:
        """Return the ``bounds`` that a new subscription sees."""
        names = list(names)
        for name in names:
            self._tail(name).close()
        return self.bounds(names)

    def _each(self, names: Iterable[str], ask: Callable[[TopicBounds], T]) -> dict[str, T]:
        tails = [self._tail(name) for name in names]
        return {tail.topic: one for tail, one in zip(tails, parallel_map(ask, tails), strict=True)}

    def _tail(self, name: str) -> TopicBounds:
        if name not in self._tails:
            is_compacted = self._options.read_compacted
            self._tails[name] = self._client.topic_bounds(name, read_compacted=is_compacted)
        return self._tails[name]

    def starts(self, *, otherwise: str, slack_ms: int = 0) -> dict[str, EntryPlace | None]:
        """Return the starting places of the options, for all partitions; None: the first entry.
        ConfigurationError if the options are invalid.

        ``otherwise``: the options' default. ``slack_ms``: how much earlier than a stated time.
        """
        names = self.partitions()
        options = self._options
        if options.starting_time is not None:
            if options.read_compacted:
                # A compaction has entries before the first one that can be looked for.
                return dict.fromkeys(names)
            times = parse_times(options.starting_time, names, "startingTime")
            return self._found(names, {name: max(0, one - slack_ms) for name, one in times.items()})
        text = options.starting_offsets or otherwise
        return self._found(names, parse_offsets(text, names, "startingOffsets"))

    def stops(self, names: list[str], *, slack_ms: int = 0) -> dict[str, EntryPlace | None]:
        """Return the ending places of the options. Partitions without one, or with ``latest``, are
        not in the result. ConfigurationError if the options are invalid, or have a time in the
        future.

        ``slack_ms``: how much later than a stated time.
        """
        options = self._options
        if options.ending_time is not None:
            # Without the slack: messages published before the end are there by then, or soon.
            times = parse_times(options.ending_time, names, "endingTime")
            check_order(parse_times(options.starting_time or "{}", names, "startingTime"), times)
            wait_for_time(max(times.values(), default=None), options.ending_wait_s)
            return self._found(times, {name: one + slack_ms for name, one in times.items()})
        begins = parse_offsets(options.starting_offsets or LATEST, names, "startingOffsets")
        positions = parse_offsets(options.ending_offsets or LATEST, names, "endingOffsets")
        check_order(begins, positions)
        stated = {name: one for name, one in positions.items() if one != LATEST}
        return self._found(stated, stated)

    def windows(self, names: Sequence[str]) -> dict[str, TimeWindow]:
        """Return the publish times that the options state, for those of ``names`` that have one."""
        options = self._options
        start, end = (
            {} if text is None else parse_times(text, names, option)
            for text, option in (
                (options.starting_time, "startingTime"),
                (options.ending_time, "endingTime"),
            )
        )
        # A compacted topic is read from its beginning, see `starts`.
        slack_ms = None if options.read_compacted else options.publish_time_slack_ms
        return {
            name: TimeWindow(
                start.get(name), end.get(name), None if name in self._unsearchable else slack_ms
            )
            for name in names
            if name in start or name in end
        }

    def confirmed(
        self, stops: dict[str, EntryPlace | None], bounds: Mapping[str, Bounds]
    ) -> dict[str, EntryPlace | None]:
        """Return the ``stops`` without those that the broker puts before messages of the window.

        ``bounds``: of the partitions.
        """
        # In a terminated topic it finds the last ledger, for a time after all messages (measured).
        ends = self._ending_times(stops)

        def is_right(name: str) -> bool:
            stop, last, end = stops[name], bounds[name].last_id, ends.get(name)
            if end is None or stop is None or last is None or stop > last.place:
                return True
            entry = self._next_entry(name, stop)
            return entry is None or entry.metadata.publish_time >= end

        names = [name for name in stops if name in bounds]
        right = dict(zip(names, parallel_map(is_right, names), strict=True))
        self._unsearchable.update(name for name in names if not right[name])
        return {name: stops[name] for name in names if right[name]}

    def exact_stops(
        self, stops: Mapping[str, EntryPlace | None], bounds: Mapping[str, Bounds]
    ) -> dict[str, EntryPlace | None]:
        """Return the ``stops`` of those in ``bounds``, by the messages' own times: the broker may
        search by its clock, or find the last ledger (see ``confirmed``)."""
        ends = self._ending_times(stops)

        def exact(name: str) -> EntryPlace | None:
            stop, last, end = stops[name], bounds[name].last_id, ends.get(name)
            if end is None or stop is None or last is None:
                return stop
            return first_published(self._client, name, stop, last.place, end)

        names = list(stops.keys() & bounds.keys())
        return dict(zip(names, parallel_map(exact, names), strict=True))

    def _ending_times(self, names: Iterable[str]) -> dict[str, int]:
        text = self._options.ending_time
        return {} if text is None else parse_times(text, list(names), "endingTime")

    def undecided(self, ends: Mapping[str, EntryPlace | None]) -> dict[str, EntryPlace]:
        """Return the partitions that an open transaction blocks before their ends (None: before the
        last written entry), and where it begins.
        """
        found = self._each(ends, lambda tail: tail.first_undecided(ends[tail.topic]))
        return {name: place for name, place in found.items() if place is not None}

    def open_transactions(self) -> list[OpenTransaction] | None:
        """Return those of the cluster, the oldest first; None without the admin API."""
        if self._options.admin_url is None:
            return None
        for tc_id in range(self._client.coordinators.count()):
            self._client.coordinators.connect(tc_id)  # before, it shows none (measured)
        return self._options.admin().open_transactions()

    def first_entry_of(self, topic: str, txn: TxnId) -> MessageId | None:
        """Return the first entry of an open transaction in an exact topic, or None."""
        return self._options.admin().first_entry_of(TopicName.parse(topic), txn)

    def _found(
        self, names: Iterable[str], positions: Mapping[str, PlaceOption]
    ) -> dict[str, EntryPlace | None]:
        latest = self.bounds(name for name, one in positions.items() if one == LATEST)
        times = {name: one for name, one in positions.items() if isinstance(one, int)}

        def place_at(tail: TopicBounds) -> EntryPlace:
            try:
                return tail.place_at(times[tail.topic])
            except BrokerError as error:
                # In a terminated topic of one ledger that was loaded again (measured).
                logger.warning("%s It is read from its beginning.", error.message)
                self._unsearchable.add(tail.topic)  # a batch selects its rows by their own times
                return tail.bounds().first

        at_times = self._each(times, place_at)
        ends = {name: _end(bounds) for name, bounds in latest.items()}
        known: dict[str, EntryPlace | None] = {**at_times, **ends}
        return {
            name: known[name] if name in known else starting_place(positions.get(name))
            for name in names
        }

    def ledgers(self, ends: Mapping[str, EntryPlace]) -> dict[str, list[Ledger]]:
        """Return existing partitions' ledgers, up to those of ``ends``, from the admin API."""
        # The result is cached: the last ledger may have grown up to twice its size since.
        unknown = [
            name for name, end in ends.items() if not _covers(self._ledgers.get(name, ()), end)
        ]
        found = existing_only(unknown, TopicName.parse, self._options.admin().ledgers)
        self._ledgers.update(found)
        return {name: self._ledgers[name] for name in ends if name in found or name not in unknown}

    def stored(self, names: Sequence[str]) -> dict[str, list[StoredLedger]]:
        """Return what tiered storage has of existing partitions, from the admin API."""
        return existing_only(names, TopicName.parse, self._options.admin().stored_ledgers)

    def expiry_reasons(self, names: Iterable[str]) -> list[str]:
        """Return as the function of this name, from the admin API."""
        return expiry_reasons(self._options.admin(), {TopicName.parse(name).base for name in names})

    def cursor(self, name: str, subscription: str) -> SubscriptionCursor:
        """Return the durable subscription of one partition."""
        return self._client.cursor(name, subscription, exclusive=self._is_exclusive)

    def unfinished_before(self, name: str, place: EntryPlace) -> EntryPlace:
        """Return as the function of this name."""
        return unfinished_before(self._client, name, place, self._options.request_timeout_s)

    def rows_per_entry(self, starts: Mapping[str, EntryPlace]) -> dict[str, int]:
        """Return about how many messages an entry of each partition has, by readable entries at
        ``starts``."""
        return self._rows_per_entry.of(starts)

    def _rows_of(self, name: str, start: EntryPlace) -> int:
        try:
            entry = self._next_entry(name, start)
        except ProtocolError:  # for the task to report, or to leave out
            return 1
        return 1 if entry is None else entry.num_messages

    def partly_read(self, last: Mapping[str, MessageId]) -> dict[str, tuple[EntryPlace, int]]:
        """Return the entries of which only the first messages were read, and how many of them.

        ``last``: the last message that was read of each partition.
        """
        # Deleted entries are not in the result: nothing is left to read of them.
        bounds = self.bounds(name for name, one in last.items() if one.batch_index >= 0)
        existing = [
            (name, last[name])
            for name, one in bounds.items()
            if one.last_id is not None and one.first <= last[name].place <= one.last_id.place
        ]
        found = parallel_map(lambda one: self._partly_read(*one), existing)
        return {name: (one.place, one.batch_index + 1) for name, one in found if one is not None}

    def _partly_read(self, name: str, last: MessageId) -> tuple[str, MessageId | None]:
        entry = self._next_entry(name, last.place)
        if entry is None or entry.id.place != last.place:
            return name, None
        return name, last if entry.num_messages > last.batch_index + 1 else None

    def _next_entry(self, name: str, start: EntryPlace) -> Entry | None:
        return next_entry(self._client, name, MessageId(*start), self._options.request_timeout_s)

    def close(self) -> None:
        """Close all connections."""
        self._client.close()


def _end(bounds: Bounds) -> EntryPlace:
    """Return the place after the last readable entry; the topic's first place if there is none."""
    return place_after(bounds.last_id) or bounds.first


def _may_match(name: str, local: re.Pattern[str]) -> bool:
    own = name.rpartition("/")[2]
    return any(map(local.fullmatch, (own, re.sub(r"-partition-\d+$", "", own))))


def _covers(ledgers: Sequence[Ledger], end: EntryPlace) -> bool:
    # A ledger that has a successor no longer changes.
    # The last one grows: it is asked about again once it has doubled, not in each epoch.
    return any(one.id == end[0] and end[1] <= 2 * one.entries for one in ledgers)
