"""Phase one, on executors: rows become Parquet files in the table's folder, invisible to readers.

Nothing here needs more than ``pyarrow``.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from eos.delta._statistics import FileStatistics
from eos.delta.files import StagedFile, file_name
from eos.delta.folder import Folder
from eos.delta.rows import Values, conform, folder_of, split
from eos.delta.upserts import conform_upserts, staged_schema
from eos.errors import ConfigurationError, InputError
from eos.participant import Upsert

# Size of a row group in memory, before encoding; for all open files of a task together.
_ROW_GROUP_BYTES: Final = 64 * 1024**2
# Limit per task. With more partitions than this, there are more files than partitions.
_OPEN_FILES: Final = 200


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
            yield from conform_upserts(batch, self.schema, self.upsert)


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
    """The files of one task: at most one open file per partition of the table."""

    def __init__(self, target: StagingTarget, attempt_id: str, spark_partition: int) -> None:
        self._target = target
        self._names = (attempt_id, spark_partition)
        self._folder = Folder(target.uri, target.storage_options)
        upsert = target.upsert
        schema = target.schema if upsert is None else staged_schema(target.schema, upsert)
        self._schema = pa.schema(
            [column for column in schema if column.name not in target.partition_columns]
        )
        self._row_group_bytes = min(_ROW_GROUP_BYTES, target.file_bytes)
        self._open: dict[str, _OpenFile] = {}
        self._begun: list[str] = []
        self._closed: list[StagedFile] = []

    def add(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        for values, rows in split(batch, self._target.partition_columns):
            self._file_for(values).add(rows)
        while sum(file.pending_bytes for file in self._open.values()) >= self._row_group_bytes:
            file = max(self._open.values(), key=lambda one: one.pending_bytes)
            with self._failures(file):
                size = file.write_row_group()
            if size >= self._target.file_bytes:
                self._close(file)

    def finish(self) -> tuple[StagedFile, ...]:
        for file in list(self._open.values()):
            self._close(file)
        with self._folder.failures("making staged files durable"):
            self._folder.make_durable(file.path for file in self._closed)
        return tuple(self._closed)

    def discard(self) -> None:
        for file in self._open.values():
            # A file in S3 is created when it is closed: first close it, then delete it.
            with suppress(Exception):
                file.abandon()
        for path in self._begun:
            with suppress(Exception):
                self._folder.delete(path)

    def _file_for(self, values: Values) -> _OpenFile:
        folder = folder_of(values)
        if folder not in self._open:
            if len(self._open) >= _OPEN_FILES:
                self._close(max(self._open.values(), key=lambda one: one.statistics.records))
            compression = self._target.compression
            # Where Delta's own writers put theirs: a vacuum cleans up after runs that died. From a
            # folder of its own (``_staged``) it would never delete a file (measured,
            # docs/facts.md).
            path = folder + file_name(*self._names, uuid.uuid4().hex, compression)
            self._begun.append(path)
            with self._folder.failures(f"writing {path}"):
                sink = self._folder.create(path)
                self._open[folder] = _OpenFile(path, values, sink, self._schema, compression)
        return self._open[folder]

    def _close(self, file: _OpenFile) -> None:
        with self._failures(file):
            self._closed.append(file.close())
        del self._open[folder_of(file.values)]

    def _failures(self, file: _OpenFile) -> Any:
        return self._folder.failures(f"writing {file.path}")


class _OpenFile:
    """A file that is being written; rows are buffered until they make a row group."""

    def __init__(
        self, path: str, values: Values, sink: Any, schema: pa.Schema, compression: str
    ) -> None:
        self.path = path
        self.values = values
        self.statistics = FileStatistics(schema)
        self.pending_bytes = 0
        self._pending: list[pa.RecordBatch] = []
        self._sink = sink
        self._writer = pq.ParquetWriter(sink, schema, compression=compression)

    def add(self, rows: pa.RecordBatch) -> None:
        self.statistics.add(rows)
        self._pending.append(rows)
        self.pending_bytes += max(rows.nbytes, 1)

    def write_row_group(self) -> int:
        """Encode the buffered rows; return the bytes of the file so far."""
        rows = pa.Table.from_batches(self._pending)
        self._pending, self.pending_bytes = [], 0
        try:
            self._writer.write_table(rows, row_group_size=max(rows.num_rows, 1))
        except pa.ArrowInvalid as error:
            raise InputError(f"Parquet does not support these rows: {error}.") from None
        return int(self._sink.tell())

    def close(self) -> StagedFile:
        if self._pending:
            self.write_row_group()
        self._writer.close()
        size = int(self._sink.tell())
        self._sink.close()
        return StagedFile(
            path=self.path,
            size_bytes=size,
            partition_values=self.values,
            records=self.statistics.records,
            stats=self.statistics.to_json(),
            written_at_ms=time.time_ns() // 1_000_000,
        )

    def abandon(self) -> None:
        with suppress(Exception):
            self._writer.close()
        self._sink.close()
