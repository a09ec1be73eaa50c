"""Cutting a stream into epochs, and an epoch into tasks; on the driver."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from eos.client import Bounds
from eos.delta.folder import Folder
from eos.errors import ConfigurationError, DataLost
from eos.ids import EntryPlace, TopicName
from eos.sources._columns import RowFormat
from eos.sources._data_loss import LossGuard
from eos.sources._entry_ranges import Contents, limited, shares
from eos.sources._history_reading import HistoryRange
from eos.sources._left_topics import check_named, known_places
from eos.sources._offset_options import LATEST
from eos.sources._offsets import EARLIEST, HistorySpan, Offset, Span, behind
from eos.sources._open_transactions import StandstillWatch, wait_until_decided
from eos.sources._options import SourceOptions
from eos.sources._planning import Planner
from eos.sources._reading import EntryRange, KeySlice, RangeGroup, grouped
from eos.sources._subscription import QuerySubscription, new_subscription_name
from eos.sources._values import BYTES, ValueFormat

logger = logging.getLogger(__name__)

if TYPE_CHECKING:
    from eos.sources._history import HistoryTable

Ends = dict[str, EntryPlace | None]


class EpochPlanner:
    """Plans the epochs of one query; one object for its whole life."""

    def __init__(self, options: SourceOptions, form: RowFormat) -> None:
        self._options = options
        self._form = form
        self._planner = Planner(options)
        self._guard = LossGuard(fail=options.fail_on_data_loss)
        self._standstill = StandstillWatch()
        self._subscription: QuerySubscription | None = None
        self._target: Ends | None = None
        self._history: HistoryTable | None = None

    def initial(self) -> Offset:
        """Where a query begins that is new, before its first epoch."""
        options = self._options
        name = options.subscription or options.rules.subscription(new_subscription_name())
        subscription = name if options.durable_subscription else None
        if options.history is not None:
            begun = self._seam(subscription)
            self._warn_of_expiry(begun)
        else:
            begun = Offset.starting(self._planner.starts(otherwise=LATEST), subscription)
        return replace(begun, keeps_left=True)

    def _seam(self, subscription: str | None) -> Offset:
        """Before the first file of the history, and in the topics where it ends."""
        from eos.sources._history import HistoryTable  # deltalake, which executors lack

        # Not kept: Spark asks again when the first epoch is replayed, and the newest version is
        # another one by then.
        table = HistoryTable.begun(self._options)
        table.check_columns(self._form)
        last = table.last_messages()
        partial = self._planner.partly_read(last)
        places: Ends = dict.fromkeys(self._planner.partitions())
        for name, one in last.items():
            places[name] = partial[name][0] if name in partial else behind(one)
        topics = sorted({str(TopicName.parse(name).base) for name in last})
        span = replace(table.span(), topics=tuple(topics), partial=partial)
        return Offset.starting(places, subscription, span)

    def _warn_of_expiry(self, seam: Offset) -> None:
        """While the history is read, what is behind the seam has to wait."""
        what = [] if self._options.admin_url is None else self._planner.what_expires(seam.spans)
        if seam.subscription is None:
            what.append("there is no subscription that keeps them")
        if what:
            logger.warning(
                "While the history is read, messages after it may be deleted: %s.",
                "; ".join(what),
            )

    def set_target(self) -> None:
        """What is there now is all that will be read."""
        bounds = self._planner.bounds(self._planner.partitions())
        self._target = {name: behind(one.last_id) for name, one in bounds.items()}

    def behind(self, offset: Offset) -> Offset:
        """The epoch behind ``offset``; itself when nothing new is readable.

        Raises:
            DataLost: what it would have had to read was deleted.
            EosError: a topic can't be asked.
        """
        bounds = self._planner.bounds(self._planner.partitions())
        places, left = known_places(offset, bounds, self._options, self._guard)
        starts = self._guard.starts(places, bounds, self._planner)
        # Of a query that keeps all places they are new topics, whatever its subscription says: a
        # checkpoint that was set back has to read them again.
        unknown = set() if offset.keeps_left else starts.keys() - places.keys()
        starts = self._keep(offset, starts, unknown)
        if (history := self._of_past(offset)) is not None:
            past = Offset.starting(starts, offset.subscription, history)
            return replace(past, left=left, keeps_left=offset.keeps_left)
        ends: Ends = {name: behind(one.last_id) for name, one in bounds.items()}
        if self._target is not None:
            ends = {name: _earlier(end, self._target.get(name)) for name, end in ends.items()}
        following = offset.followed_by(starts, ends, left)
        self._standstill.look(following.ends, self._planner)
        if following is offset or not self._options.is_limited:
            return following
        return offset.followed_by(starts, {**ends, **self._limited(following)}, left)

    def _of_past(self, offset: Offset) -> HistorySpan | None:
        """The history's files behind those of ``offset``; None: there are none.

        Raises:
            ConfigurationError: the query has begun with another history, or without one.
        """
        span, wanted = offset.history, self._options.history
        if wanted is not None and Folder(wanted).uri != (span and span.table):
            begun = "without a history" if span is None else f"with the history at {span.table}"
            raise ConfigurationError(
                f"This query has begun {begun}, and can't go on with {wanted}.",
                hint="Leave the option as it was, or begin a new query with a new checkpoint.",
            )
        if span is None or span.is_done:
            return None
        try:
            return self._table_of(span).next_span(span)
        except DataLost as error:
            self._guard.lost(error.message, span.table)
            return replace(span, first=span.count, last=span.count)

    def _table_of(self, span: HistorySpan) -> HistoryTable:
        from eos.sources._history import HistoryTable  # deltalake, which executors lack

        if self._history is None:
            self._history = HistoryTable.again(self._options, span)
            self._history.check_columns(self._form)
        return self._history

    def _limited(self, offset: Offset) -> Mapping[str, EntryPlace]:
        contents = self._contents(offset)
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
            each = self._planner.rows_per_entry(firsts)
            rows = sum(one.entries * each[name] for name, one in contents.items())
            fractions.append(options.max_rows_per_trigger / max(1, rows))
        return limited(contents, min(fractions))

    def _contents(self, offset: Offset) -> dict[str, Contents]:
        spans = _with_entries(offset)
        ends = {name: span.end for name, span in spans.items() if span.end is not None}
        ledgers = self._planner.ledgers(ends)
        return {name: Contents.of(span, ledgers[name]) for name, span in spans.items()}

    def _keep(
        self, offset: Offset, starts: dict[str, EntryPlace], unknown: Collection[str]
    ) -> dict[str, EntryPlace]:
        if offset.subscription is None or not self._options.durable_subscription:
            return starts
        if self._subscription is None:
            # A checkpoint may be older than the prefix.
            kept = self._options.rules.subscription(offset.subscription)
            name = self._options.subscription or kept
            self._subscription = QuerySubscription(
                name, self._planner, timeout_s=self._options.request_timeout_s
            )
        return self._subscription.keep(starts, unknown)

    def commit(self, offset: Offset) -> None:
        """Spark will not ask again for what is in the epoch of ``offset`` or before it."""
        if self._subscription is not None:
            self._subscription.move(offset.ends)

    def tasks(self, offset: Offset) -> Sequence[EntryRange | RangeGroup | HistoryRange]:
        """What tasks read for the epoch of ``offset``.

        Raises:
            ConfigurationError: it has what the query's options do not name.
            EosError: a topic can't be asked.
        """
        check_named(offset, self._options)
        return [*self._of_history(offset.history), *self._of_topics(offset)]

    def _of_history(self, span: HistorySpan | None) -> Sequence[HistoryRange]:
        if span is None or span.is_empty:
            return []
        try:
            return self._table_of(span).ranges(span)
        except DataLost as error:
            self._guard.lost(error.message, span.table)
            return []

    def _of_topics(self, offset: Offset) -> Sequence[EntryRange | RangeGroup]:
        partial = {} if offset.history is None else offset.history.partial

        def skip(one: EntryRange) -> int:
            place, messages = partial.get(one.topic, (None, 0))
            return messages if place is not None and place == one.span.start else 0

        ranges = [
            EntryRange(one.topic, one.span, one.keys, skip(one)) for one in self._ranges(offset)
        ]
        return grouped(ranges, self._options.max_partitions)

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
        contents = self._contents(offset)
        parts = shares(contents, wanted)
        return [
            EntryRange(name, span)
            for name, one in contents.items()
            for span in one.split(parts[name])
        ]

    def bounded(self) -> Offset:
        """The one epoch of a batch read: all between the places that the options say.

        Raises:
            DataLost: entries behind a starting place have been deleted.
            TransactionStillOpen: one is open before a stated end.
            EosError: a topic can't be asked.
        """
        history = None
        if self._options.history is not None:
            begun = self._seam(None)
            places, history = begun.ends, begun.history
            assert history is not None
            history = history.followed_by(history.count)
        else:
            places = self._planner.starts(otherwise=EARLIEST)
        stops = self._planner.stops(list(places))
        wait_until_decided(
            {name: stop for name, stop in stops.items() if stop is not None},
            self._planner,
            wait_s=self._options.ending_wait_s,
            fail=self._options.on_open_transaction == "fail",
        )
        bounds: dict[str, Bounds] = self._planner.bounds(places)
        # A compaction keeps messages of entries that were deleted since: nothing is lost.
        starts: Ends = {name: places[name] for name in bounds}
        if not self._options.read_compacted:
            starts.update(self._guard.starts(places, bounds, self._planner))
        # What is not there yet can't be read: it may never come.
        ends: Ends = {name: behind(one.last_id) for name, one in bounds.items()}
        for name in ends.keys() & stops.keys():
            ends[name] = _earlier(stops[name], ends[name])
        return replace(Offset.starting(starts).followed_by(starts, ends), history=history)

    def close(self) -> None:
        """Close all connections."""
        self._planner.close()


def values_of(options: SourceOptions) -> ValueFormat:
    """How the values of the topics are read, by what the registry has now.

    Raises:
        TopicNotFound: a topic is not there, or none matches the pattern.
        EosError: as ``value_format``.
    """
    if options.value_schema == BYTES:
        return ValueFormat(None, None, options.mode)
    planner = Planner(options)
    try:
        return planner.values()
    finally:
        planner.close()


def _with_entries(offset: Offset) -> dict[str, Span]:
    return {name: span for name, span in offset.spans.items() if not span.is_empty}


def _earlier(one: EntryPlace | None, other: EntryPlace | None) -> EntryPlace | None:
    return None if one is None or other is None else min(one, other)
