"""The Parquet files that a task has open: their number and the memory of their rows are bounded."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, suppress
from typing import Any, Final, Generic, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from eos.errors import InputError

# Size of a row group in memory, before encoding; for all open files of a task together.
_ROW_GROUP_BYTES: Final = 64 * 1024**2
# Memory of a buffered batch in addition to its rows, roughly.
_BATCH_BYTES: Final = 1024
# Limit per task. If more partitions than this have full row groups, they have several files.
_OPEN_FILES: Final = 200
# Arrow drops a dictionary only when it has 1 MiB. Of columns that hardly repeat a value it makes
# files up to twice as large, and takes three times as long (measured: 20 columns, a million rows).
_SAMPLED_ROWS: Final = 10_000
_DISTINCT: Final = 0.95

Create = Callable[[str, list[str]], tuple[Any, pq.ParquetWriter]]
"""Opens a file by its path and the columns that get a dictionary."""


class OpenFile:
    """A file that is being written; it is created with its first row group.

    Attributes:
        path: for ``Create``.
        records: rows so far, also those that are not yet in a row group.
        pending_bytes: memory of the rows that are not yet in a row group.
    """

    def __init__(self, path: str) -> None:
        self.path: Final = path
        self.records = 0
        self.pending_bytes = 0
        self._pending: list[pa.RecordBatch] = []
        self._file: tuple[Any, pq.ParquetWriter] | None = None

    @property
    def is_created(self) -> bool:
        """Whether a row group has been written."""
        return self._file is not None

    def add(self, rows: pa.RecordBatch) -> None:
        """Buffer rows, which must not be a slice: it keeps its whole batch in memory."""
        self.records += rows.num_rows
        self._pending.append(rows)
        self.pending_bytes += rows.nbytes + _BATCH_BYTES

    def write_row_group(self, create: Create) -> int:
        """Encode the buffered rows; return the bytes of the file so far.

        Raises:
            InputError: Parquet does not support the rows.
        """
        rows = pa.Table.from_batches(self._pending)
        self._pending, self.pending_bytes = [], 0
        self._file = sink, writer = self._file or create(self.path, repeating_columns(rows))
        try:
            writer.write_table(rows, row_group_size=max(rows.num_rows, 1))
        except pa.ArrowInvalid as error:
            raise InputError(f"Parquet does not support these rows: {error}.") from None
        return int(sink.tell())

    def close(self, create: Create) -> tuple[pq.FileMetaData, int]:
        """Write the rest, and return the file's footer and size in bytes."""
        if self._pending:
            self.write_row_group(create)
        assert self._file is not None
        sink, writer = self._file
        writer.close()
        size = int(sink.tell())
        sink.close()
        return writer.writer.metadata, size

    def abandon(self) -> None:
        """Close the file, whatever is in it."""
        if self._file is not None:
            sink, writer = self._file
            with suppress(Exception):
                writer.close()
            sink.close()


def repeating_columns(rows: pa.Table) -> list[str]:
    """Return the Parquet paths of the columns whose values repeat, by a sample of the rows."""
    step = max(rows.num_rows // _SAMPLED_ROWS, 1)
    sample = rows.take(pa.array(range(0, rows.num_rows, step)))
    return [
        path
        for name, column in zip(sample.column_names, sample.columns, strict=True)
        for path, values in leaves(name, column.combine_chunks())
        if _repeats(values)
    ]


def leaves(path: str, column: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    """Yield the plain columns inside a column, by their Parquet paths."""
    kind = column.type
    if pa.types.is_struct(kind):
        for at, child in enumerate(kind):
            yield from leaves(f"{path}.{child.name}", column.field(at))
    elif pa.types.is_map(kind):
        yield from leaves(f"{path}.key_value.key", column.keys)
        yield from leaves(f"{path}.key_value.value", column.items)
    elif isinstance(column, pa.ListArray | pa.LargeListArray | pa.FixedSizeListArray):
        yield from leaves(f"{path}.list.element", column.flatten())
    else:
        yield path, column


def _repeats(values: pa.Array) -> bool:
    try:
        distinct = pc.count_distinct(values, mode="all").as_py()
    except pa.ArrowNotImplementedError:  # not of all types: nulls, for example
        return True
    return bool(distinct <= _DISTINCT * len(values))


F = TypeVar("F", bound=OpenFile)


class OpenFiles(Generic[F]):
    """The open files of a task: at most one per partition of the table.

    Args:
        create: opens a new file for writing.
        closed: gets each closed file, its footer and its size in bytes.
        failures: translates the errors of writing to a path.
        file_bytes: a file of this size is closed, and the next one begun.
    """

    def __init__(
        self,
        create: Create,
        closed: Callable[[F, pq.FileMetaData, int], None],
        failures: Callable[[str], AbstractContextManager[None]],
        *,
        file_bytes: int,
    ) -> None:
        self._create_file = create
        self._closed = closed
        self._failures = failures
        self._file_bytes = file_bytes
        self._row_group_bytes = min(_ROW_GROUP_BYTES, file_bytes)
        self._open: dict[Hashable, F] = {}
        self._begun: list[str] = []

    def add(self, partition: Hashable, rows: pa.RecordBatch, begin: Callable[[], F]) -> None:
        """Buffer rows of a partition; ``begin`` gives the file if the partition has none."""
        if partition not in self._open:
            self._open[partition] = begin()
        self._open[partition].add(rows)

    def write_full(self) -> None:
        """Write row groups, the largest first, until the buffered rows are fewer than one."""
        while sum(file.pending_bytes for file in self._open.values()) >= self._row_group_bytes:
            partition, file = max(self._open.items(), key=lambda one: one[1].pending_bytes)
            with self._failures(file.path):
                size = file.write_row_group(self._create)
            if size >= self._file_bytes:
                self._close(partition)

    def close(self) -> None:
        """Write what is buffered, and close all files."""
        while self._open:  # not a loop over them: to close one may close another
            self._close(next(iter(self._open)))

    def abandon(self) -> list[str]:
        """Close all files; return the paths of all that were ever created."""
        for file in self._open.values():
            # An object is created when it is closed: first close it, then delete it.
            with suppress(Exception):
                file.abandon()
        return self._begun

    def _create(self, path: str, repeating: list[str]) -> tuple[Any, pq.ParquetWriter]:
        created = [one for one in self._open.items() if one[1].is_created]
        if len(created) >= _OPEN_FILES:
            self._close(max(created, key=lambda one: one[1].records)[0])
        self._begun.append(path)
        return self._create_file(path, repeating)

    def _close(self, partition: Hashable) -> None:
        file = self._open[partition]
        with self._failures(file.path):
            metadata, size = file.close(self._create)
        del self._open[partition]
        self._closed(file, metadata, size)
