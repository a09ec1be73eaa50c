"""Files of a table with the topics' history: where the history ends, and its rows, for tasks."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eos.delta.folder import Folder
from eos.errors import ConfigurationError, InputError
from eos.ids import MessageId, TopicName
from eos.sources._data_loss import LossGuard
from eos.sources._row_format import RowFormat
from eos.sources._source_options import SourceOptions
from eos.sources._value_format import MALFORMED_REASON, Mode
from eos.wire.decoding import MessageIds, decode_message_ids

ELSEWHERE: Final = re.compile("/|[a-z][a-z0-9+.-]*:/")
"""Matches a path outside of the table's folder."""


class HistoryFile(NamedTuple):
    """One Parquet file: its path in the table's folder, and the partition values of its rows."""

    path: str
    partition: Any


@dataclass(frozen=True)
class HistoryRange:
    """A task's files of the table at ``uri`` with the columns ``schema``, and the topics to
    read."""

    uri: str
    files: Sequence[HistoryFile]
    schema: pa.Schema
    topics: frozenset[str]


def dataset_of(folder: Folder, files: Sequence[HistoryFile], schema: pa.Schema) -> Any:
    """Return the files as one dataset, in their order; a file's missing columns are null."""
    # Not above: it loads pandas, 0.2 s of each new worker, which few need.
    import pyarrow.dataset as ds

    system = folder.file_system()
    # Spark writes times as INT96; as nanoseconds they would hold only the years 1677 to 2262.
    form = ds.ParquetFileFormat(
        read_options=ds.ParquetReadOptions(coerce_int96_timestamp_unit="us")
    )
    fragments = [
        form.make_fragment(path, filesystem=system, partition_expression=partition)
        for path, partition in files
    ]
    return ds.FileSystemDataset(fragments, schema, form, system)


def read_history(
    options: SourceOptions, form: RowFormat, one: HistoryRange
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the query's topics, in their order.

    Raises:
        DataLost: a file no longer exists.
        Retriable: it can't be read.
    """
    folder = Folder(one.uri)
    guard = LossGuard(fail=options.fail_on_data_loss)
    has_topics = TOPIC_COLUMN in one.schema.names
    existing = [name for name in form.names if name in one.schema.names]
    drops = drops_malformed(form.values.mode, one.schema.names)
    more = [TOPIC_COLUMN] * has_topics + [MALFORMED_REASON] * drops
    wanted = list(dict.fromkeys([*existing, *more]))
    with folder.failures("reading it"):
        sizes = folder.size_bytes([file.path for file in one.files])
        files = [file for file, size in zip(one.files, sizes, strict=True) if size is not None]
        if len(files) < len(one.files):
            guard.report(
                f"{len(one.files) - len(files)} files of the history at {folder.uri} no longer "
                "exist: was the table vacuumed?",
                folder.uri,
            )
        for batch in batches_of(folder, files, one.schema, wanted):
            # A topic added meanwhile is read from the broker: its rows here would come twice.
            rows = _of_topics(batch, one.topics) if has_topics else batch
            if drops:
                rows = rows.filter(pc.is_null(rows.column(MALFORMED_REASON)))
            if rows.num_rows:
                yield _as_wanted(rows, form.schema)


def drops_malformed(mode: Mode, columns: Collection[str]) -> bool:
    """Whether rows of malformed messages have to be left out of a table with these columns.

    Raises:
        ConfigurationError: the mode refuses such rows, of which an archive keeps nulls.
    """
    if MALFORMED_REASON not in columns or mode is Mode.PERMISSIVE:
        return False
    if mode is Mode.FAILFAST:
        raise ConfigurationError(
            "The archive was made with mode=permissive, and may have malformed messages as nulls.",
            hint="Set mode=permissive, which shows them, or mode=dropmalformed.",
        )
    return True


def batches_of(
    folder: Folder, files: Sequence[HistoryFile], schema: pa.Schema, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of files, one file after the other.

    Raises:
        InputError: one is not a Parquet file, or its columns differ from the table's.
        OSError: the storage fails.
    """
    try:
        # Arrow reads ahead without a limit (measured): so it gets one row group at a time.
        for fragment in dataset_of(folder, files, schema).get_fragments():
            for group in fragment.split_by_row_group():
                yield from group.to_batches(schema=schema, columns=list(columns))
    except pa.ArrowInvalid as error:
        raise InputError(
            f"history: a file of {folder.uri} can't be read: {folder.clean(error)}.",
            hint="The file is damaged, or does not match the table's log. Restore it, or rewrite "
            "the table without it.",
        ) from None


def _of_topics(batch: pa.RecordBatch, wanted: Collection[str]) -> pa.RecordBatch:
    topics = batch.column(TOPIC_COLUMN).cast(pa.string())
    names = topics.unique().to_pylist()
    mine = [
        name
        for name in names
        if (topic := maybe_topic(name)) is not None and str(topic.base) in wanted
    ]
    if len(mine) == len(names):
        return batch
    return batch.filter(pc.is_in(topics, pa.array(mine, pa.string())))


def _as_wanted(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    existing = set(rows.schema.names)
    columns = [
        rows.column(field.name).cast(field.type)
        if field.name in existing
        else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, names=schema.names)


ID_COLUMN: Final = "__messageId"
TOPIC_COLUMN: Final = "__topic"

IsRead = Callable[[TopicName], bool]  # Whether a query reads this topic.


def last_messages(
    batches: Iterable[pa.RecordBatch], is_read: IsRead, only: TopicName | None
) -> dict[str, MessageId]:
    """Return the last message of each exact partition, by ids alone: rows may be in any order.

    Args:
        batches: with the columns ``__messageId`` and, if ``only`` is None, ``__topic``.
        only: the topic of all rows.

    Raises:
        InputError: a row has no id, or no topic's name.
    """
    found: dict[str, MessageId] = {}
    for batch in batches:
        for name, last in _of_batch(batch, is_read, only):
            found[name] = max(
                last, found.get(name, last), key=lambda one: (*one.place, one.batch_index)
            )
    return found


def _of_batch(
    batch: pa.RecordBatch, is_read: IsRead, only: TopicName | None
) -> Iterator[tuple[str, MessageId]]:
    ids = _decoded(batch.column(ID_COLUMN))
    codes = np.zeros(batch.num_rows, np.int64)
    topics = [only]
    if only is None:
        codes, topics = _topics(batch.column(TOPIC_COLUMN))
    # Sorted by topic, partition and place: a partition's last message is before a change of it.
    order = np.lexsort((ids.batch_index, ids.entry, ids.ledger, ids.partition, codes))
    changes = (np.diff(codes[order]) != 0) | (np.diff(ids.partition[order]) != 0)
    for row in order[np.append(np.flatnonzero(changes), len(order) - 1)] if len(order) else ():
        topic = topics[codes[row]]
        if topic is not None and is_read(topic):
            last = _id_at(ids, row)
            yield _exact(topic, last.partition), last


def _exact(topic: TopicName, partition: int) -> str:
    # Some clients write a partition's name as the topic.
    return str(topic if partition < 0 else topic.base.partition(partition))


def _topics(column: pa.Array) -> tuple[np.ndarray, list[TopicName | None]]:
    """Return an index for each row, and the topics; None: a topic that no query can read."""
    named = column.cast(pa.string()).dictionary_encode()
    if named.null_count:
        raise InputError(f"The history has a row without a {TOPIC_COLUMN}.")
    codes = named.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return codes, [maybe_topic(name) for name in named.dictionary.to_pylist()]


def maybe_topic(name: str) -> TopicName | None:
    """Parse a name; None if no query can read such a topic, which other clients can create."""
    try:
        return TopicName.parse(name)
    except ConfigurationError:
        return None


def _decoded(column: pa.Array) -> MessageIds:
    try:
        return decode_message_ids(column)
    except ValueError:
        raise InputError(
            f"The history has a row with an invalid {ID_COLUMN}.",
            hint=f"Archive the topic with this source's column {ID_COLUMN}, of option metadata.",
        ) from None


def _id_at(ids: MessageIds, row: int) -> MessageId:
    columns = (ids.ledger, ids.entry, ids.partition, ids.batch_index)
    return MessageId(*(int(column[row]) for column in columns))
