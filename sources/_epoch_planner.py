"""Divides a stream into epochs, and an epoch into tasks; runs on the driver."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from eos.client import Bounds
from eos.delta.folder import Folder
from eos.errors import ConfigurationError, DataLost
from eos.ids import EntryPlace, TopicName
from eos.sources._data_loss import LossGuard, check_named, known_places
from eos.sources._entry_ranges import Contents, limited, shares
from eos.sources._history_files import HistoryRange
from eos.sources._offsets import EARLIEST, LATEST, Ends, HistorySpan, Offset, Span, place_after
from eos.sources._open_transactions import StandstillWatch, wait_until_decided
from eos.sources._range_reader import EntryRange, KeySlice, grouped
from eos.sources._row_format import RowFormat
from eos.sources._source_options import SourceOptions
from eos.sources._source_topics import SourceTopics
from eos.sources._subscription import PREFIX, QuerySubscription, new_subscription_name
from eos.sources._time_window import TimeWindow
from eos.sources._value_format import ValueFormat
from eos.sources.tiered_storage import worth_reading

logger = logging.getLogger(__name__)

if TYPE_CHECKING:
    from eos.sources._history_table import HistoryTable


class EpochPlanner:
    """Plans the epochs of one query, during a whole run of it.

    Args:
        form: the query's columns, which a history has to have; None: the options name no history.
        exclusive: nothing else may move the subscription at the same time.
    """

    def __init__(
        self, options: SourceOptions, form: RowFormat | None, *, exclusive: bool = False
    ) -> None:
        self._options = options
        self._form = form
        self._topics = SourceTopics(options, exclusive_subscription=exclusive)
        self._exclusive = exclusive
        self._guard = LossGuard(fail=options.fail_on_data_loss)
        self._standstill = StandstillWatch()
        self._subscription: QuerySubscription | None = None
        self._target: Ends | None = None
        self._open_ledgers: dict[str, int] = {}
        self._history: HistoryTable | None = None
        self._windows: Mapping[str, TimeWindow] = {}  # of a batch read, once it is planned

    @property
    def _columns(self) -> RowFormat:
        assert self._form is not None
        return self._form

    def initial(self) -> Offset:
        """Return the offset of a new query, before its first epoch."""
        options = self._options
        name = options.subscription or options.rules.subscription(new_subscription_name())
        subscription = name if options.durable_subscription else None
        if options.history is not None:
            initial = self._history_boundary(subscription)
            self._warn_of_expiry(initial)
        else:
            initial = Offset.starting(self._topics.starts(otherwise=LATEST), subscription)
        return replace(initial, keeps_left=True)

    def _history_boundary(self, subscription: str | None) -> Offset:
        """Return the offset before the history's first file; in the topics, where it ends.

        Raises:
            ConfigurationError, IncompatibleSchema: the table has not the query's rows and columns.
            EosError: the table or a topic can't be read.
        """
        from eos.sources._history_table import HistoryTable  # deltalake, which executors lack

        # Not cached: Spark calls this again when the first epoch is replayed, and then the newest
        # version may be another one.
        table = HistoryTable.for_new_query(self._options)
        table.check_columns(self._columns)
        places: Ends = dict.fromkeys(self._topics.partitions())
        known, partial = table.archived_places(places), {}
        if known is None:
            last = table.last_messages()
            partial = self._topics.partly_read(last)
            # The history may lack a part of its last entry, which is read from the topic.
            known = {name: place_after(one) for name, one in last.items()}
            known |= {name: place for name, (place, _) in partial.items()}
        places |= known
        # An archive has no place of partitions that no longer exist, but their rows.
        topics = sorted({str(TopicName.parse(name).base) for name in places})
        span = replace(table.span(), topics=tuple(topics), partial=partial)
        return Offset.starting(places, subscription, span)

    def _warn_of_expiry(self, boundary: Offset) -> None:
        # Messages after the history may expire while it is read.
        reasons = []
        if self._options.admin_url is not None:
            reasons += self._topics.expiry_reasons(boundary.spans)
        if boundary.subscription is None:
            reasons.append("there is no subscription that keeps them")
        if reasons:
            logger.warning(
                "While the history is read, messages after it may be deleted: %s.",
                "; ".join(reasons),
            )

    def set_target(self) -> None:
        """Limit the query to the messages that exist now, and come before a stated end."""
        bounds = self._topics.final_bounds(self._topics.partitions())
        self._target = {name: place_after(one.last_id) for name, one in bounds.items()}
        stops = self._topics.exact_stops(self._topics.stops(list(bounds)), bounds)
        for name, stop in stops.items():
            self._target[name] = _earlier(stop, self._target[name])

    def values(self) -> ValueFormat:
        """Return the format of the topics' values now; errors as of ``SourceTopics``."""
        return self._topics.values()

    def lost_fields(self) -> set[str]:
        """Return as ``SourceTopics``."""
        return self._topics.lost_fields()

    def partitions(self) -> list[str]:
        """Return the exact names of all partitions now; errors as of ``SourceTopics``."""
        return self._topics.partitions()

    def expiry_reasons(self) -> list[str]:
        """Return as ``SourceTopics``; it needs the admin API."""
        return self._topics.expiry_reasons(self._topics.partitions())

    def undecided(self) -> dict[str, EntryPlace]:
        """Return where an open transaction begins in each partition that has one."""
        return self._topics.undecided(dict.fromkeys(self._topics.partitions()))

    def next_offset(self, offset: Offset) -> Offset:
        """Return the offset of the epoch after ``offset``; ``offset`` if nothing new is readable.

        Raises:
            DataLost: entries that it had to read were deleted.
            EosError: a topic can't be queried.
        """
        self._guard.begin(offset)
        bounds = self._topics.bounds(self._topics.partitions())
        places, left = known_places(offset, bounds, self._options, self._guard)
        losses = self._guard.losses
        starts = self._guard.starts(places, bounds, self._topics)
        if self._guard.losses > losses and self._subscription is not None:
            self._subscription.forget(name for name in places if places[name] != starts.get(name))
        # If the query keeps all places, unknown topics are new, even if its subscription says
        # otherwise: a checkpoint that was set back must read them again.
        unknown = set() if offset.keeps_left else starts.keys() - places.keys()
        starts = self._keep(offset, starts, unknown)
        if (history := self._next_history(offset)) is not None:
            past = Offset.starting(starts, offset.subscription, history)
            return replace(past, left=left, keeps_left=offset.keeps_left)
        ends: Ends = {name: place_after(one.last_id) for name, one in bounds.items()}
        if self._target is not None:
            ends = {name: _earlier(end, self._target.get(name)) for name, end in ends.items()}
        # `left` is kept: a topic that returns continues where the query was.
        following = offset.followed_by(starts, ends, left)
        self._standstill.check(following.ends, self._topics)
        if following is offset or not self._options.is_limited:
            return following
        return offset.followed_by(starts, {**ends, **self._limited(following)}, left)

    def _next_history(self, offset: Offset) -> HistorySpan | None:
        """Return the history's files after those of ``offset``; None if there are no more."""
        span, wanted = offset.history, self._options.history
        if wanted is not None and Folder(wanted).uri != (span and span.table):
            before = "without a history" if span is None else f"with the history at {span.table}"
            raise ConfigurationError(
                f"This query was started {before}, and can't continue with {wanted}.",
                hint="Restore the option, or start a new query with a new checkpoint.",
            )
        if span is None or span.is_done:
            return None
        try:
            return self._table_of(span).next_span(span)
        except DataLost as error:
            self._guard.report(error.message, span.table)
            return replace(span, first=span.count, last=span.count)

    def _table_of(self, span: HistorySpan) -> HistoryTable:
        from eos.sources._history_table import HistoryTable  # deltalake, which executors lack

        if self._history is None:
            self._history = HistoryTable.for_running_query(self._options, span)
            self._history.check_columns(self._columns)
        return self._history

    def _limited(self, offset: Offset) -> Mapping[str, EntryPlace]:
        contents = self.contents(offset)
        options = self._options
        fractions = [1.0]
        if options.max_entries_per_trigger is not None:
            entries = sum(one.entries for one in contents.values())
            fractions.append(options.max_entries_per_trigger / max(1, entries))
        if options.max_bytes_per_trigger is not None:
            in_bytes = sum(one.bytes for one in contents.values())
            fractions.append(options.max_bytes_per_trigger / max(1.0, in_bytes))
        if options.max_rows_per_trigger is not None:
            firsts = {name: one.span.start or (0, 0) for name, one in contents.items()}
            each = self._topics.rows_per_entry(firsts)
            rows = sum(one.entries * each[name] for name, one in contents.items())
            fractions.append(options.max_rows_per_trigger / max(1, rows))
        return limited(contents, min(fractions))

    def contents(self, offset: Offset) -> dict[str, Contents]:
        """Return the entries of the epoch of ``offset``, if any, by the admin API; DataLost if a
        partition was deleted."""
        spans = _with_entries(offset)
        ends = {name: span.end for name, span in spans.items() if span.end is not None}
        ledgers = self._topics.ledgers(ends)
        for name in sorted(ends.keys() - ledgers.keys()):
            self._guard.report_deleted(name)
        return {name: Contents.of(spans[name], some) for name, some in ledgers.items()}

    def _keep(
        self, offset: Offset, starts: dict[str, EntryPlace], unknown: Collection[str]
    ) -> dict[str, EntryPlace]:
        if offset.subscription is None or not self._options.durable_subscription:
            return starts
        if self._subscription is None:
            name = self._options.subscription
            # See `check_named`. An archive has no checkpoint.
            if name is None and not self._exclusive and PREFIX not in offset.subscription:
                raise ConfigurationError(
                    f"The checkpoint has the subscription {offset.subscription!r}, which the "
                    "query's options do not name.",
                    hint="If it is this query's, set the option subscription as before.",
                )
            # The checkpoint may be older than the prefix.
            name = name or self._options.rules.subscription(offset.subscription)
            self._subscription = QuerySubscription(
                name, self._topics, timeout_s=self._options.request_timeout_s
            )
        return self._subscription.keep(starts, unknown)

    def commit(self, offset: Offset) -> None:
        """Release the entries up to the epoch of ``offset``: Spark won't read them again."""
        if self._subscription is not None:
            self._subscription.move(offset.ends)

    def tasks(self, offset: Offset) -> list[Sequence[EntryRange] | HistoryRange]:
        """Return the tasks of the epoch of ``offset``; those of a history's files come first.

        Raises:
            ConfigurationError: it has topics or a table that the query's options do not name.
            EosError: a topic can't be queried.
        """
        check_named(offset, self._options)
        return [*self._history_tasks(offset.history), *self._topic_tasks(offset)]

    def _history_tasks(self, span: HistorySpan | None) -> Sequence[HistoryRange]:
        if span is None or span.is_empty:
            return []
        try:
            return self._table_of(span).ranges(span)
        except DataLost as error:
            self._guard.report(error.message, span.table)
            return []

    def _topic_tasks(self, offset: Offset) -> list[Sequence[EntryRange]]:
        partial = {} if offset.history is None else offset.history.partial

        def skip(one: EntryRange) -> int:
            place, messages = partial.get(one.topic, (None, 0))
            return messages if place is not None and place == one.span.start else 0

        ranges = [replace(one, skip=skip(one)) for one in self.ranges(offset)]
        return grouped(ranges, self._options.max_partitions)

    def ranges(self, offset: Offset) -> Sequence[EntryRange]:
        """Return the ranges of the epoch's entries, in order."""
        options = self._options
        found = [replace(one, window=self._windows.get(one.topic)) for one in self._ranges(offset)]
        if options.tiered_storage is None or options.read_compacted:
            return found
        # A stream at its end reads from the open ledger, and need not ask each time.
        names = {one.topic for one in found if not self._is_in_open_ledger(one)}
        stored = self._topics.stored(sorted(names))
        self._open_ledgers |= {name: some[-1].id for name, some in stored.items() if some}
        return [
            replace(one, ledgers=worth_reading(one.span, stored.get(one.topic, ())))
            for one in found
        ]

    def _is_in_open_ledger(self, one: EntryRange) -> bool:
        start, end = one.span.start, one.span.end
        known = self._open_ledgers.get(one.topic)
        if start is None or end is None or known is None:
            return False
        return start[0] == end[0] >= known

    def _ranges(self, offset: Offset) -> Sequence[EntryRange]:
        spans, wanted = _with_entries(offset), self._options.min_partitions
        if wanted is None or len(spans) >= wanted:
            return [EntryRange(name, span) for name, span in spans.items()]
        if self._options.split_by == "keys":
            count = -(-wanted // max(1, len(spans)))
            return [
                EntryRange(name, span, KeySlice(index, count))
                for name, span in spans.items()
                for index in range(count)
            ]
        contents = self.contents(offset)
        parts = shares(contents, wanted)
        return [
            EntryRange(name, span)
            for name, one in contents.items()
            for span in one.split(parts[name])
        ]

    def bounded(self) -> Offset:
        """Return the single epoch of a batch read: all entries between the options' places.

        Raises:
            DataLost: entries after a starting place were deleted.
            TransactionStillOpen: a transaction is open before a stated end.
            EosError: a topic can't be queried.
        """
        history, slack_ms = None, self._options.publish_time_slack_ms
        if self._options.history is not None:
            boundary = self._history_boundary(None)
            places, history = boundary.ends, boundary.history
            assert history is not None
            history = history.followed_by(history.count)
        else:
            places = self._topics.starts(otherwise=EARLIEST, slack_ms=slack_ms)
        stops = self._topics.stops(list(places), slack_ms=slack_ms)
        wait_until_decided(
            {name: stop for name, stop in stops.items() if stop is not None},
            self._topics,
            wait_s=self._options.ending_wait_s,
            # Otherwise an open transaction would cut the window short, unnoticed.
            fail=self._options.on_open_transaction == "fail",
        )
        bounds: dict[str, Bounds] = self._topics.final_bounds(places)
        # A compaction keeps messages of entries that were deleted later: they are not lost.
        starts: Ends = {name: places[name] for name in bounds}
        if self._options.read_compacted and self._options.admin_url is None:
            logger.warning(
                "readCompacted: without adminUrl a compaction that ends during the read is not "
                "noticed, and may bring deleted keys back."
            )
        if not self._options.read_compacted:
            starts.update(self._guard.starts(places, bounds, self._topics))
        # A stated end after the last entry is not waited for: it may never be reached.
        ends: Ends = {name: place_after(one.last_id) for name, one in bounds.items()}
        stops = self._topics.confirmed(stops, bounds)
        self._windows = self._topics.windows(list(places))  # after the searches: they may fail
        for name in ends.keys() & stops.keys():
            ends[name] = _earlier(stops[name], ends[name])
        return replace(Offset.starting(starts).followed_by(starts, ends), history=history)

    def close(self) -> None:
        """Close all connections."""
        self._topics.close()


def values_of(options: SourceOptions) -> ValueFormat:
    """Return the format of the topics' values; errors as of ``SourceTopics.values``."""
    topics = SourceTopics(options)
    try:
        return topics.values()
    finally:
        topics.close()


def _with_entries(offset: Offset) -> dict[str, Span]:
    return {name: span for name, span in offset.spans.items() if not span.is_empty}


def _earlier(one: EntryPlace | None, other: EntryPlace | None) -> EntryPlace | None:
    return None if one is None or other is None else min(one, other)
