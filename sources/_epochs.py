"""Cutting a stream into epochs, and an epoch into tasks; on the driver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from eos.client import Bounds
from eos.ids import EntryPlace
from sources._cutting import Contents, limited, shares
from sources._loss import LossGuard
from sources._offsets import EARLIEST, Offset, Span, behind
from sources._options import SourceOptions
from sources._places import LATEST
from sources._planning import Planner
from sources._reading import EntryRange, KeySlice
from sources._subscription import QuerySubscription, new_subscription_name
from sources._values import BYTES, ValueFormat

Ends = dict[str, EntryPlace | None]


class EpochPlanner:
    """Plans the epochs of one query; one object for its whole life."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._planner = Planner(options)
        self._guard = LossGuard(fail=options.fail_on_data_loss)
        self._subscription: QuerySubscription | None = None
        self._target: Ends | None = None

    def initial(self) -> Offset:
        """Where a query begins that is new, before its first epoch."""
        options = self._options
        name = options.subscription or new_subscription_name()
        places = self._planner.starts(otherwise=LATEST)
        return Offset.starting(places, name if options.durable_subscription else None)

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
        starts = self._guard.starts(offset.ends, bounds, self._planner)
        self._keep(offset, starts)
        ends: Ends = {name: behind(one.last_id) for name, one in bounds.items()}
        if self._target is not None:
            ends = {name: _earlier(end, self._target.get(name)) for name, end in ends.items()}
        following = offset.followed_by(starts, ends)
        if following is offset or not self._options.is_limited:
            return following
        return offset.followed_by(starts, {**ends, **self._limited(following)})

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
        ledgers = self._planner.ledgers(spans)
        return {name: Contents.of(span, ledgers[name]) for name, span in spans.items()}

    def _keep(self, offset: Offset, starts: Mapping[str, EntryPlace]) -> None:
        if offset.subscription is None or not self._options.durable_subscription:
            return
        if self._subscription is None:
            name = self._options.subscription or offset.subscription
            self._subscription = QuerySubscription(name, self._planner)
        self._subscription.keep(starts)

    def commit(self, offset: Offset) -> None:
        """Spark will not ask again for what is in the epoch of ``offset`` or before it."""
        if self._subscription is not None:
            self._subscription.move(offset.ends)

    def tasks(self, offset: Offset) -> Sequence[EntryRange]:
        """What tasks read for the epoch of ``offset``."""
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
            EosError: a topic can't be asked.
        """
        places = self._planner.starts(otherwise=EARLIEST)
        stops = self._planner.stops(list(places))
        bounds: dict[str, Bounds] = self._planner.bounds(places)
        starts = self._guard.starts(places, bounds, self._planner)
        # What is not there yet can't be read: it may never come.
        ends = {
            name: _earlier(stops.get(name), behind(one.last_id)) for name, one in bounds.items()
        }
        return Offset.starting(starts).followed_by(starts, ends)

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
