"""In tasks: one range of a partition's entries becomes Arrow batches of Spark's columns."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import InputPartition

from eos.client import PulsarClient
from eos.client.worker_cache import kept_client
from eos.errors import DataLost, ProtocolError
from eos.ids import MessageId, TopicName
from eos.schemas.reading import SchemaVersion
from eos.sources._columns import RowFormat
from eos.sources._data_loss import LossGuard
from eos.sources._offsets import Span, place_text
from eos.sources._options import SourceOptions
from eos.sources._values import Mode, version_of
from eos.wire.batch import key_slices

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class KeySlice:
    """One of ``count`` ranges of the keys' hashes, from 0; messages without a key are in 0."""

    index: int
    count: int


class EntryRange(InputPartition):
    """What one task reads: a span of one exact partition, or a slice of its keys.

    ``skip``: so many messages of the span's first entry are left out: a history has them.
    """

    def __init__(self, topic: str, span: Span, keys: KeySlice | None = None, skip: int = 0) -> None:
        super().__init__((topic, span, keys, skip))
        self.topic = topic
        self.span = span
        self.keys = keys
        self.skip = skip

    def columns(self, needs: tuple[str, ...]) -> tuple[str, ...]:
        """What has to be read to choose its messages and make ``needs`` of them."""
        keys = () if self.keys is None else ("key",)
        places = ("ledger", "entry", "batch_index") if self.skip else ()
        return tuple(dict.fromkeys((*needs, *keys, *places)))

    def mine(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Those of the messages that are its own."""
        if self.keys is not None:
            slices = key_slices(batch.column("key"), self.keys.count)
            batch = batch.filter(pa.array(slices == self.keys.index))
        if self.skip and self.span.start is not None:
            ledger, entry = self.span.start
            is_first = pc.and_(
                pc.equal(batch.column("ledger"), ledger), pc.equal(batch.column("entry"), entry)
            )
            is_had = pc.and_(is_first, pc.less(batch.column("batch_index"), self.skip))
            batch = batch.filter(pc.invert(is_had))
        return batch


class RangeGroup(InputPartition):
    """Several of them, which one task reads one after the other."""

    def __init__(self, ranges: Sequence[EntryRange]) -> None:
        super().__init__(ranges)
        self.ranges = ranges


def grouped(ranges: Sequence[EntryRange], most: int | None) -> Sequence[EntryRange | RangeGroup]:
    """The same ranges in their order, for at most ``most`` tasks; None: for one each."""
    if most is None or len(ranges) <= most:
        return ranges
    ends = [len(ranges) * task // most for task in range(most + 1)]
    return [RangeGroup(ranges[start:end]) for start, end in pairwise(ends)]


def read_range(
    options: SourceOptions, form: RowFormat, one: EntryRange
) -> Iterator[pa.RecordBatch]:
    """The rows of a range, in their order.

    Raises:
        DataLost: some of it was deleted before it was read.
        InputError, IncompatibleSchema: values can't be read as the query wants them.
        EosError: it can't be read.
    """
    if one.span.is_empty:
        return
    guard = LossGuard(fail=options.fail_on_data_loss)
    with kept_client(options.client) as client:
        try:
            batches = _opened(client, options, form, one)
            yield from _converted(client, batches, form, one)
        except DataLost as error:
            guard.lost(error.args[0], one.topic)
        if not options.read_compacted:  # what a compaction took out is no loss
            _check_it_was_all_there(client, one, guard)


def _opened(
    client: PulsarClient, options: SourceOptions, form: RowFormat, one: EntryRange
) -> Iterator[pa.RecordBatch]:
    """The messages of a range; what can't be opened is passed over, unless it has to be an error.

    What came damaged is asked for again first: a broker short of memory has delivered an entry that
    it holds undamaged (seen once, 4.2.4).
    """
    start, last = one.span.first, one.span.last
    asked_again: set[MessageId | None] = set()
    while start is None or start.place <= last.place:
        columns, compacted = one.columns(form.needs), options.read_compacted
        with client.reader(
            one.topic, start=start, columns=columns, read_compacted=compacted
        ) as reader:
            try:
                yield from reader.read_to(last)
            except ProtocolError as error:
                start = reader.next_id
                if start not in asked_again:
                    asked_again.add(start)
                    continue
                if form.values.mode is Mode.FAILFAST:
                    error.hint = (
                        "With mode=dropmalformed such an entry is left out, and so it is with "
                        "mode=permissive."
                    )
                    raise
                if error.place is None:
                    raise
                logger.warning("%s: %s It is left out.", one.topic, error.message)
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
        rows = one.mine(batch)
        for start in range(0, rows.num_rows, form.rows_at_once):
            yield form.rows(rows.slice(start, form.rows_at_once), topic, find)


def _check_it_was_all_there(client: PulsarClient, one: EntryRange, guard: LossGuard) -> None:
    """Where an entry is gone the broker goes on with the next one, without a word (measured). What
    is there to the end of the reading was there all the time: entries are deleted from the front.
    """
    start = one.span.start
    if start is None:
        return
    tail = client.tail(one.topic)
    try:
        first = tail.bounds().first
    finally:
        tail.close()
    if first > start:
        guard.lost(
            f"Entries of {one.topic} from {place_text(start)} on, up to {place_text(first)}, were "
            "deleted before they were read to the end.",
            one.topic,
        )
