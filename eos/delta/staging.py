"""Phase one, on executors: rows become Parquet files in the table's folder that no reader sees.

The files stand where Delta's own writers put theirs: in the table's folder, or their partition's. A
vacuum takes from there what no version of the table names and what is older than the table's
retention (7 days unless set otherwise); so it cleans up behind runs that died, and behind the
table when it removed a file. From a folder of our own (``_staged``) nothing is ever taken, also
not what the table has removed (measured, see docs/facts.md).

Nothing here needs more than ``pyarrow``.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from eos.delta._conform import conform
from eos.delta._partitions import Values, folder_of, split
from eos.delta._statistics import FileStatistics
from eos.delta.files import StagedFile, file_name
from eos.delta.folder import Folder
from eos.errors import ConfigurationError, InputError

_ROW_GROUP_BYTES: Final = 64 * 1024**2
"""Of rows in memory, before they are encoded; of all open files of a task together."""
_OPEN_FILES: Final = 200
"""Of one task. Rows of more partitions than this make more files than partitions."""


@dataclass(frozen=True)
class StagingTarget:
    """What a task needs to know of the table; goes to executors by pickling."""

    uri: str
    """Absolute path or ``s3://`` URL of the table."""
    schema: pa.Schema
    """All columns of the table behind the commit, as ``TargetTable.check_schema`` gave it."""
    partition_columns: tuple[str, ...] = ()
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """As ``deltalake`` takes them; may hold credentials."""
    file_bytes: int = 128 * 1024**2
    """A file that has grown to this is closed, and the next one begun."""
    compression: Literal["snappy", "zstd"] = "snappy"


def stage(
    batches: Iterable[pa.RecordBatch],
    target: StagingTarget,
    *,
    attempt_id: str,
    spark_partition: int,
) -> tuple[StagedFile, ...]:
    """Write all rows of one task to new files, closed and durable when this returns.

    Args:
        batches: columns by name, see ``eos.delta.columns`` for casts.
        attempt_id: in the name of each file, beside ``spark_partition`` and a fresh uuid.

    Returns:
        The files, in the order in which they were closed; none when there are no rows.

    Raises:
        InputError: rows that don't fit the table; the message names the column.
        ConfigurationError: the table's place or the attempt's id is none.
        Retriable: the storage failed.
        Exception: whatever ``batches`` raises. In each case what was begun is deleted, as far as
            the storage allows; the rest is a vacuum's, for no commit names it.
    """
    try:
        file_name(attempt_id, spark_partition, "", target.compression)
    except ValueError as error:
        raise ConfigurationError(f"{error}.") from None
    staging = _Staging(target, attempt_id, spark_partition)
    try:
        for batch in batches:
            staging.add(conform(batch, target.schema))
        return staging.finish()
    except BaseException:
        staging.discard()
        raise


class _Staging:
    """The files of one task: at most one open for each partition of the table."""

    def __init__(self, target: StagingTarget, attempt_id: str, spark_partition: int) -> None:
        self._target = target
        self._names = (attempt_id, spark_partition)
        self._folder = Folder(target.uri, target.storage_options)
        self._schema = pa.schema(
            [column for column in target.schema if column.name not in target.partition_columns]
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
        while sum(file.waiting_bytes for file in self._open.values()) >= self._row_group_bytes:
            file = max(self._open.values(), key=lambda one: one.waiting_bytes)
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
            # A file in S3 comes into being when it is closed: first close it, then delete it.
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
    """One file that is being written; rows wait until they make a row group."""

    def __init__(
        self, path: str, values: Values, sink: Any, schema: pa.Schema, compression: str
    ) -> None:
        self.path = path
        self.values = values
        self.statistics = FileStatistics(schema)
        self.waiting_bytes = 0
        self._waiting: list[pa.RecordBatch] = []
        self._sink = sink
        self._writer = pq.ParquetWriter(sink, schema, compression=compression)

    def add(self, rows: pa.RecordBatch) -> None:
        self.statistics.add(rows)
        self._waiting.append(rows)
        self.waiting_bytes += max(rows.nbytes, 1)

    def write_row_group(self) -> int:
        """Encode what waits.

        Returns:
            The bytes of the file so far.
        """
        rows = pa.Table.from_batches(self._waiting)
        self._waiting, self.waiting_bytes = [], 0
        try:
            self._writer.write_table(rows, row_group_size=max(rows.num_rows, 1))
        except pa.ArrowInvalid as error:
            raise InputError(f"Rows that Parquet does not take: {error}.") from None
        return int(self._sink.tell())

    def close(self) -> StagedFile:
        if self._waiting:
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
