"""In tasks: one range of a partition's entries becomes Arrow batches of Spark's columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from eos.client import PulsarClient
from eos.client.kept import kept_client
from eos.errors import DataLost, IncompatibleSchema
from eos.ids import TopicName
from eos.schemas.reading import SchemaVersion
from eos.wire.batch import key_slices
from sources._columns import RowFormat
from sources._loss import LossGuard
from sources._offsets import Span, place_text
from sources._options import SourceOptions
from sources._values import version_of


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
            yield from _rows(client, form, one)
        except DataLost as error:
            guard.lost(error.args[0], one.topic)
        _check_it_was_all_there(client, one, guard)


def _rows(client: PulsarClient, form: RowFormat, one: EntryRange) -> Iterator[pa.RecordBatch]:
    topic = TopicName.parse(one.topic)
    columns = form.needs if one.keys is None else tuple(dict.fromkeys((*form.needs, "key")))

    @lru_cache
    def find(version: bytes) -> SchemaVersion:
        found = version_of(client, topic, version)
        if found is None:
            raise IncompatibleSchema(
                f"{topic} has messages of schema version {version.hex()}, which is not in the "
                "registry any more.",
                hint='Read them as bytes: schema="bytes".',
            )
        return found

    with client.reader(one.topic, start=one.span.first, columns=columns) as reader:
        for batch in reader.read_to(one.span.last):
            rows = batch if one.keys is None else _slice(batch, one.keys)
            if rows.num_rows:
                yield form.rows(rows, topic, find)


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
