"""Phase one, on executors: rows become Parquet files in the table's folder, invisible to readers.

Nothing here needs more than ``pyarrow``.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from eos.delta._statistics import FileStatistics
from eos.delta.files import StagedFile, file_name
from eos.delta.folder import Folder
from eos.delta.open_files import OpenFile, OpenFiles
from eos.delta.rows import Values, conform, folder_of, split
from eos.delta.upserts import conform_upserts, staged_schema
from eos.errors import ConfigurationError
from eos.participant import Upsert


@dataclass(frozen=True)
class StagingTarget:
    """The table as a task needs it; pickled to executors."""

    uri: str
    """Absolute path or ``s3://`` URL of the table."""
    schema: pa.Schema
    """All columns of the table after the commit, from ``TargetTable.check_schema``."""
    partition_columns: tuple[str, ...] = ()
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """As for ``deltalake``; may hold credentials."""
    file_bytes: int = 128 * 1024**2
    """A file of this size is closed, and the next one begun."""
    compression: Literal["snappy", "zstd"] = "snappy"
    upsert: Upsert | None = None
    """``schema`` then has the columns that the rows have, and files have one column more."""

    def conformed(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield rows as the files have them; raises as ``conform``."""
        if self.upsert is None:
            yield conform(batch, self.schema)
        else:
            yield from conform_upserts(batch, self.schema, self.upsert, self.partition_columns)


def stage(
    batches: Iterable[pa.RecordBatch],
    target: StagingTarget,
    *,
    attempt_id: str,
    spark_partition: int,
) -> tuple[StagedFile, ...]:
    """Write all rows of one task to new files, closed and durable when this returns.

    Args:
        batches: columns by name, see ``eos.delta.column_rules`` for casts.
        attempt_id: part of each file's name, with ``spark_partition`` and a new uuid.

    Returns:
        The files, in the order in which they were closed; none without rows.

    Raises:
        InputError: rows that don't fit the table; the message names the column.
        ConfigurationError: the table's location or the attempt's id is invalid.
        Retriable: the storage failed.
        Exception: any error of ``batches``. In each case begun files are deleted, as far as the
            storage allows; a vacuum deletes the rest, because no commit names them.
    """
    try:
        file_name(attempt_id, spark_partition, "", target.compression)
    except ValueError as error:
        raise ConfigurationError(f"{error}.") from None
    staging = _Staging(target, attempt_id, spark_partition)
    try:
        for batch in batches:
            for rows in target.conformed(batch):
                staging.add(rows)
        return staging.finish()
    except BaseException:
        staging.discard()
        raise


class _Staging:
    """The files of one task."""

    def __init__(self, target: StagingTarget, attempt_id: str, spark_partition: int) -> None:
        self._target = target
        self._names = (attempt_id, spark_partition)
        self._folder = Folder(target.uri, target.storage_options)
        upsert = target.upsert
        schema = target.schema if upsert is None else staged_schema(target.schema, upsert)
        self._split_by = target.partition_columns if upsert is None else ()
        self._schema = pa.schema([column for column in schema if column.name not in self._split_by])
        self._open: OpenFiles[_DataFile] = OpenFiles(
            self._create,
            self._on_closed,
            lambda path: self._folder.failures(f"writing {path}"),
            file_bytes=target.file_bytes,
        )
        self._closed: list[StagedFile] = []

    def add(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        for values, rows in split(batch, self._split_by):
            # Not by their folder: two long texts may share one.
            self._open.add(tuple(values.items()), rows, partial(self._begin, values))
        self._open.write_full()

    def finish(self) -> tuple[StagedFile, ...]:
        self._open.close()
        with self._folder.failures("making staged files durable"):
            self._folder.make_durable(file.path for file in self._closed)
        return tuple(self._closed)

    def discard(self) -> None:
        for path in self._open.abandon():
            with suppress(Exception):
                self._folder.delete(path)

    def _begin(self, values: Values) -> _DataFile:
        # Where Delta's own writers put theirs: a vacuum cleans up after runs that died. From a
        # folder of its own (``_staged``) it would never delete a file (measured, docs/facts.md).
        name = file_name(*self._names, uuid.uuid4().hex, self._target.compression)
        return _DataFile(folder_of(values) + name, values, self._schema)

    def _create(self, path: str, repeating: list[str]) -> tuple[Any, pq.ParquetWriter]:
        sink = self._folder.create(path)
        writer = pq.ParquetWriter(
            sink, self._schema, compression=self._target.compression, use_dictionary=repeating
        )
        return sink, writer

    def _on_closed(self, file: _DataFile, _: pq.FileMetaData, size: int) -> None:
        self._closed.append(
            StagedFile(
                path=file.path,
                size_bytes=size,
                partition_values=file.values,
                records=file.records,
                stats=file.statistics.to_json(),
                written_at_ms=time.time_ns() // 1_000_000,
            )
        )


class _DataFile(OpenFile):
    """A file, with its partition's values and the statistics of its rows."""

    def __init__(self, path: str, values: Values, schema: pa.Schema) -> None:
        super().__init__(path)
        self.values: Final = values
        self.statistics: Final = FileStatistics(schema)

    def add(self, rows: pa.RecordBatch) -> None:
        self.statistics.add(rows)
        super().add(rows)
