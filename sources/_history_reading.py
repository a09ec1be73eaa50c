"""Reads files of a table with the topics' history, in tasks."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs
from pyspark.sql.datasource import InputPartition

from eos.delta.folder import Folder
from eos.errors import InputError
from eos.sources._data_loss import LossGuard
from eos.sources._history_boundary import TOPIC_COLUMN, maybe_topic
from eos.sources._row_format import RowFormat
from eos.sources._source_options import SourceOptions


class HistoryFile(NamedTuple):
    """One Parquet file: its path in the table's folder, and the partition values of its rows."""

    path: str
    partition: Any


class HistoryRange(InputPartition):
    """A task's files of the table at ``uri``, which has the columns ``schema``, and the ``topics``
    whose rows it reads."""

    def __init__(
        self, uri: str, files: Sequence[HistoryFile], schema: pa.Schema, topics: Sequence[str]
    ) -> None:
        super().__init__((uri, files, schema, topics))
        self.uri = uri
        self.files = files
        self.schema = schema
        self.topics = frozenset(topics)


def dataset_of(folder: Folder, files: Sequence[HistoryFile], schema: pa.Schema) -> Any:
    """Return the files as one dataset, in their order; a file's missing columns are null."""
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
    wanted = list(dict.fromkeys([*existing, *([TOPIC_COLUMN] if has_topics else [])]))
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
            rows = _of_topics(batch, one.topics) if has_topics else batch
            if rows.num_rows:
                yield _as_wanted(rows, form.schema)


def batches_of(
    folder: Folder, files: Sequence[HistoryFile], schema: pa.Schema, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of files, one file after the other.

    Raises:
        InputError: one is not a Parquet file, or its columns differ from the table's.
        OSError: the storage fails.
    """
    try:
        yield from dataset_of(folder, files, schema).to_batches(columns=list(columns))
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
