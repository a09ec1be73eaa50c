"""In tasks: one range of a partition's entries becomes Arrow batches of Spark's columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from eos.client import PulsarClient
from eos.client.kept import kept_client
from eos.errors import DataLost
from eos.ids import TopicName
from eos.wire.batch import key_slices
from sources._columns import needed_columns, to_spark
from sources._loss import LossGuard
from sources._offsets import Span, place_text
from sources._options import SourceOptions


@dataclass(frozen=True)
class KeySlice:
    """One of ``count`` ranges of the keys' hashes, from 0; messages without a key are in 0."""

    index: int
    count: int


class EntryRange(InputPartition):
    """What one task reads: a span of one exact partition, or a slice of its keys."""

    def __init__(self, topic: str, span: Span, keys: KeySlice | None = None) -> None:
        super().__init__((topic, span, keys))
        self.topic = topic
        self.span = span
        self.keys = keys


def read_range(
    options: SourceOptions, names: tuple[str, ...], one: EntryRange
) -> Iterator[pa.RecordBatch]:
    """The rows of a range, in their order.

    Raises:
        DataLost: some of it was deleted before it was read.
        EosError: it can't be read.
    """
    if one.span.is_empty:
        return
    guard = LossGuard(fail=options.fail_on_data_loss)
    with kept_client(options.client) as client:
        try:
            yield from _rows(client, names, one)
        except DataLost as error:
            guard.lost(error.args[0], one.topic)
        _check_it_was_all_there(client, one, guard)


def _rows(
    client: PulsarClient, names: tuple[str, ...], one: EntryRange
) -> Iterator[pa.RecordBatch]:
    topic = TopicName.parse(one.topic)
    needed = needed_columns(names)
    columns = needed if one.keys is None else tuple(dict.fromkeys((*needed, "key")))
    with client.reader(one.topic, start=one.span.first, columns=columns) as reader:
        for batch in reader.read_to(one.span.last):
            rows = batch if one.keys is None else _slice(batch, one.keys)
            if rows.num_rows:
                yield to_spark(rows, topic, names)


def _slice(batch: pa.RecordBatch, keys: KeySlice) -> pa.RecordBatch:
    mine = key_slices(batch.column("key"), keys.count) == keys.index
    return batch.filter(pa.array(mine))


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
