"""In tasks: files of a table that holds the topics' past become Spark's columns."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs
from pyspark.sql.datasource import InputPartition

from eos.delta.folder import Folder
from eos.ids import TopicName
from sources._columns import RowFormat
from sources._loss import LossGuard
from sources._options import SourceOptions
from sources._seam import TOPIC_COLUMN


class HistoryFile(NamedTuple):
    """One Parquet file: its path in the table's folder, and what is the same in all of its rows."""

    path: str
    partition: Any


class HistoryRange(InputPartition):
    """What one task reads of the table at ``uri``, which has the columns ``schema``: the rows of
    ``topics``."""

    def __init__(
        self, uri: str, files: Sequence[HistoryFile], schema: pa.Schema, topics: Sequence[str]
    ) -> None:
        super().__init__((uri, files, schema, topics))
        self.uri = uri
        self.files = files
        self.schema = schema
        self.topics = frozenset(topics)


def dataset_of(folder: Folder, files: Sequence[HistoryFile], schema: pa.Schema) -> Any:
    """The files as one, in their order; a column that a file lacks is null there."""
    system = folder.file_system()
    form = ds.ParquetFileFormat()
    fragments = [
        form.make_fragment(path, filesystem=system, partition_expression=partition)
        for path, partition in files
    ]
    return ds.FileSystemDataset(fragments, schema, form, system)


def read_history(
    options: SourceOptions, form: RowFormat, one: HistoryRange
) -> Iterator[pa.RecordBatch]:
    """The rows of its files that are of the query's topics, in their order.

    Raises:
        DataLost: a file is not there any more.
        Retriable: it can't be read.
    """
    folder = Folder(one.uri)
    guard = LossGuard(fail=options.fail_on_data_loss)
    has_topics = TOPIC_COLUMN in one.schema.names
    there = [name for name in form.names if name in one.schema.names]
    wanted = list(dict.fromkeys([*there, *([TOPIC_COLUMN] if has_topics else [])]))
    with folder.failures("reading it"):
        sizes = folder.size_bytes([file.path for file in one.files])
        files = [file for file, size in zip(one.files, sizes, strict=True) if size is not None]
        if len(files) < len(one.files):
            guard.lost(
                f"{len(one.files) - len(files)} files of the history at {folder.uri} are not there "
                "any more: was the table vacuumed?",
                folder.uri,
            )
        for batch in dataset_of(folder, files, one.schema).to_batches(columns=wanted):
            rows = _of_topics(batch, one.topics) if has_topics else batch
            if rows.num_rows:
                yield _as_wanted(rows, form.schema)


def _of_topics(batch: pa.RecordBatch, wanted: Collection[str]) -> pa.RecordBatch:
    topics = batch.column(TOPIC_COLUMN).cast(pa.string())
    names = topics.unique().to_pylist()
    mine = [name for name in names if str(TopicName.parse(name).base) in wanted]
    if len(mine) == len(names):
        return batch
    return batch.filter(pc.is_in(topics, pa.array(mine, pa.string())))


def _as_wanted(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    there = set(rows.schema.names)
    columns = [
        rows.column(field.name).cast(field.type)
        if field.name in there
        else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, names=schema.names)
