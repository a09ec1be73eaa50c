"""Reads ranges of partitions' entries, in tasks, and converts them to Spark's columns."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc

from eos.admin import StoredLedger
from eos.client import PulsarClient
from eos.client.worker_cache import cached_client
from eos.errors import (
    BrokerNotReady,
    DataLost,
    DecryptionFailed,
    ProtocolError,
    TopicNotFound,
)
from eos.ids import MessageId, TopicName
from eos.schemas.reading import SchemaVersion
from eos.sources._data_loss import LossGuard
from eos.sources._offsets import Span, place_text
from eos.sources._row_format import RowFormat
from eos.sources._source_options import SourceOptions
from eos.sources._time_window import TimeWindow
from eos.sources._value_format import Mode, version_of
from eos.sources.tiered_storage import OtherData, PlannedStorage
from eos.wire.batch import key_slices

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class KeySlice:
    """One of ``count`` ranges of the keys' hashes, from 0; messages without a key belong to 0."""

    index: int
    count: int


@dataclass(frozen=True)
class EntryRange:
    """A task's input: a span of one exact partition, or a slice of its keys.

    ``skip``: how many messages of the span's first entry are left out, because a history has them.
    ``ledgers``: those of the span, if one of them is read from tiered storage. ``window``: of
    all messages in the span, those that are wanted.
    """

    topic: str
    span: Span
    keys: KeySlice | None = None
    skip: int = 0
    ledgers: tuple[StoredLedger, ...] = ()
    window: TimeWindow | None = None

    def columns(self, needs: tuple[str, ...]) -> tuple[str, ...]:
        """Return the client's columns that are needed for ``needs`` and for ``select``."""
        keys = () if self.keys is None else ("key",)
        places = ("ledger", "entry", "batch_index") if self.skip else ()
        # To be selected by, also if the query does not want it.
        times = () if self.window is None else ("publish_time",)
        return tuple(dict.fromkeys((*needs, *keys, *places, *times)))

    def select(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the messages that belong to the range."""
        if self.keys is not None:
            slices = key_slices(batch.column("key"), self.keys.count)
            batch = batch.filter(pa.array(slices == self.keys.index))
        if self.skip and self.span.start is not None:
            ledger, entry = self.span.start
            is_first = pc.and_(
                pc.equal(batch.column("ledger"), ledger), pc.equal(batch.column("entry"), entry)
            )
            is_skipped = pc.and_(is_first, pc.less(batch.column("batch_index"), self.skip))
            batch = batch.filter(pc.invert(is_skipped))
        return batch if self.window is None else self.window.select(batch, self.topic)


def grouped(ranges: Sequence[EntryRange], most: int | None) -> list[Sequence[EntryRange]]:
    """Return the same ranges, in their order, for at most ``most`` tasks; None: one for each."""
    tasks = len(ranges) if most is None else min(most, len(ranges))
    ends = [len(ranges) * task // max(1, tasks) for task in range(tasks + 1)]
    return [ranges[start:end] for start, end in pairwise(ends)]


def read_range(
    options: SourceOptions, form: RowFormat, one: EntryRange
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a range, in their order.

    Raises:
        DataLost: entries were deleted before they were read.
        BrokerNotReady: the topic was compacted meanwhile.
        InputError, IncompatibleSchema: values can't be converted to the query's columns.
        EosError: it can't be read.
    """
    if one.span.is_empty:
        return
    guard = LossGuard(fail=options.fail_on_data_loss)
    compacted = _compacted_ledger(options, one)
    with cached_client(options.client) as client:
        try:
            batches = _opened(client, options, form, one)
            yield from _converted(client, batches, form, one)
        except DataLost as error:
            guard.report(error.args[0], one.topic)
        except TopicNotFound:
            guard.report_deleted(one.topic)
            return
    if not options.read_compacted:  # entries that a compaction removed are no loss
        check_not_deleted(options, one)
    # A reader that a compaction overtakes misses deletions (apache/pulsar #26190; measured).
    elif _compacted_ledger(options, one) != compacted:
        raise BrokerNotReady(
            f"{one.topic} was compacted while it was read, so deleted keys may have come back.",
            hint="Read it again, or between two compactions.",
        )


def _compacted_ledger(options: SourceOptions, one: EntryRange) -> int | None:
    if not options.read_compacted or options.admin_url is None:
        return None
    return options.admin().compacted_ledger(TopicName.parse(one.topic))


def _opened(
    client: PulsarClient, options: SourceOptions, form: RowFormat, one: EntryRange
) -> Iterator[pa.RecordBatch]:
    # Entries that can't be decoded are skipped, except with mode=failfast. A damaged entry is
    # fetched again first: a broker that was short of memory once delivered a damaged copy of an
    # intact entry (4.2.4).
    start = None if one.span.start is None else MessageId(*one.span.start)
    storage = None
    if one.ledgers:
        assert options.tiered_storage is not None
        storage = PlannedStorage(options.tiered_storage, options.admin, one.ledgers)
    fetched_again: set[MessageId | None] = set()
    while start is None or start.place <= one.span.last.place:
        with client.reader(
            one.topic,
            start=start,
            columns=one.columns(form.needs),
            read_compacted=options.read_compacted,
            storage=storage,
        ) as reader:
            try:
                yield from reader.read_to(one.span.last)
            except (OtherData, DecryptionFailed):
                raise  # for these there is crypto_failure_action, and no mode
            except ProtocolError as error:
                start = reader.next_id
                # An entry that came damaged was whole when read again (measured).
                if start not in fetched_again:
                    fetched_again.add(start)
                    continue
                if form.values.mode is Mode.FAILFAST:
                    error.hint = "Set mode=dropmalformed or mode=permissive to skip such entries."
                    raise
                if error.place is None:
                    raise
                logger.warning("%s: %s It is skipped.", one.topic, error.message)
                # After the whole entry: none of its messages could be decoded.
                start = MessageId(error.place[0], error.place[1] + 1)
                continue
        return


def _converted(
    client: PulsarClient, batches: Iterator[pa.RecordBatch], form: RowFormat, one: EntryRange
) -> Iterator[pa.RecordBatch]:
    topic = TopicName.parse(one.topic)

    @lru_cache
    def find(version: bytes) -> SchemaVersion | None:
        return version_of(client, topic, version)

    for batch in batches:
        yield from form.rows(one.select(batch), topic, find)


def check_not_deleted(options: SourceOptions, one: EntryRange) -> None:
    """Check, after the first entries of a range were read, that none was deleted before.

    Raises:
        DataLost: some may have been; with ``fail_on_data_loss=False`` this is a warning.
    """
    # Only the range's first entry is checked, after reading. The broker silently skips deleted
    # entries (measured); they are deleted from the front, so no other was missing.
    start = one.span.start
    if start is None:
        return
    guard = LossGuard(fail=options.fail_on_data_loss)
    with (
        cached_client(options.client) as client,
        closing(client.topic_bounds(one.topic)) as tail,
    ):
        try:
            first = tail.bounds().first
        except TopicNotFound:
            guard.report_deleted(one.topic)
            return
    # Entries deleted while the task reads would be missing without a word.
    if first > start:
        guard.report(
            f"Entries of {one.topic} from {place_text(start)} up to {place_text(first)} were "
            "deleted before or while they were read.",
            one.topic,
        )
