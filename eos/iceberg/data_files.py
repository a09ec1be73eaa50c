"""Phase one, on executors: rows become Parquet files in the table's folder, invisible to readers.

The files have Iceberg's field ids, partition values and column bounds. Needs ``pyiceberg``.
"""

from __future__ import annotations

import base64
import struct
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.conversions import to_bytes
from pyiceberg.io import load_file_io
from pyiceberg.io.pyarrow import (
    MetricModeTypes,
    MetricsMode,
    StatisticsCollector,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.locations import load_location_provider
from pyiceberg.typedef import Record
from pyiceberg.types import NestedField, StructType

from eos import _storage as storage
from eos.delta.open_files import OpenFile, OpenFiles
from eos.delta.rows import conform
from eos.errors import InputError, Retriable
from eos.iceberg.data_file_entry import DataFileEntry, arrow_schema, make_durable, primitive

ICEBERG: Final = "Iceberg"
# A longer part of a path does not fit into the 255 bytes of most file systems.
_MAX_FOLDER_CHARS: Final = 200


@dataclass(frozen=True)
class IcebergTarget:
    """The table as a task needs it; pickled to executors."""

    location: str
    schema: str
    """As JSON, like ``spec``: independent of the release of ``pyiceberg``."""
    spec: str
    properties: Mapping[str, str]
    """Of the table."""
    io: Mapping[str, str] = field(repr=False)
    """Of its file system; may hold credentials."""
    file_bytes: int = 128 * 1024**2
    """A file of this size is closed, and the next one begun."""
    compression: Literal["snappy", "zstd"] = "zstd"


def stage(
    batches: Iterable[pa.RecordBatch],
    target: IcebergTarget,
    *,
    attempt_id: str,
    spark_partition: int,
) -> tuple[DataFileEntry, ...]:
    """Write all rows of one task to new files, closed and durable when this returns.

    Args:
        batches: columns by name, see ``eos.delta.column_rules`` for casts.
        attempt_id: part of each file's name, with ``spark_partition`` and a new uuid.

    Returns:
        The files, in the order in which they were closed; none without rows.

    Raises:
        InputError: rows that don't fit the table; the message names the column.
        Retriable: the storage failed.
        Exception: any error of ``batches``. In each case begun files are deleted, as far as the
            storage allows; Iceberg's ``remove_orphan_files`` deletes the rest.
    """
    staging = _Staging(target, f"eos-{attempt_id}-{spark_partition:05}")
    try:
        for batch in batches:
            staging.add(conform(batch, staging.columns, ICEBERG))
        return staging.finish()
    except BaseException:
        staging.discard()
        raise


class _Staging:
    """The files of one task."""

    def __init__(self, target: IcebergTarget, prefix: str) -> None:
        self._target = target
        self._prefix = prefix
        self._schema = Schema.model_validate_json(target.schema)
        self._spec = PartitionSpec.model_validate_json(target.spec)
        self.columns = arrow_schema(self._schema)
        self._partitioner = _Partitioner(self._spec, self._schema)
        self._io = load_file_io(dict(target.io), target.location)
        self._locations = load_location_provider(target.location, dict(target.properties))
        self._open: OpenFiles[_DataFile] = OpenFiles(
            self._create, self._on_closed, self._failures, file_bytes=target.file_bytes
        )
        self._closed: list[DataFileEntry] = []

    def add(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        for values, rows in self._partitioner.split(batch):
            self._open.add(repr(values), rows, partial(self._begin, values))
        self._open.write_full()

    def finish(self) -> tuple[DataFileEntry, ...]:
        self._open.close()
        make_durable(file.path for file in self._closed)
        return tuple(self._closed)

    def discard(self) -> None:
        for path in self._open.abandon():
            with suppress(Exception):
                self._io.delete(path)

    def _begin(self, values: tuple[Any, ...]) -> _DataFile:
        # By the table's own rules: hashed prefixes (write.object-storage.enabled), a data path.
        name = f"{self._partitioner.folder(values)}{self._prefix}-{uuid.uuid4().hex}.parquet"
        return _DataFile(self._locations.new_data_location(name), values)

    def _create(self, path: str, repeating: list[str]) -> tuple[Any, pq.ParquetWriter]:
        sink = self._io.new_output(path).create()
        # Decimals as Iceberg's Java writer has them: as integers, if they fit into 64 bits.
        writer = pq.ParquetWriter(
            sink,
            self.columns,
            compression=self._target.compression,
            use_dictionary=repeating,
            store_decimal_as_integer=True,
        )
        return sink, writer

    def _on_closed(self, file: _DataFile, metadata: pq.FileMetaData, size: int) -> None:
        # From the footer that was just written; the file is not read again. The table's properties
        # say how long bounds of texts may be, and which columns have none.
        plan = compute_statistics_plan(self._schema, dict(self._target.properties))
        try:
            statistics = self._statistics(metadata, plan)
        except ValueError:
            # A text has no bound of this length: after U+D7FF come the surrogates.
            counts = MetricsMode(MetricModeTypes.COUNTS)
            texts = {
                key: replace(one, mode=counts)
                for key, one in plan.items()
                if one.mode.type is MetricModeTypes.TRUNCATE
            }
            statistics = self._statistics(metadata, plan | texts)
        self._closed.append(
            DataFileEntry(
                path=file.path,
                size_bytes=size,
                records=file.records,
                spec_id=self._spec.spec_id,
                partition=self._partitioner.serialized(file.values),
                column_sizes=statistics["column_sizes"],
                value_counts=statistics["value_counts"],
                null_counts=statistics["null_value_counts"],
                lower_bounds=_texts(statistics["lower_bounds"]),
                upper_bounds=_texts(statistics["upper_bounds"]),
                split_offsets=tuple(statistics["split_offsets"]),
            )
        )

    def _statistics(
        self, metadata: pq.FileMetaData, plan: dict[int, StatisticsCollector]
    ) -> dict[str, Any]:
        return data_file_statistics_from_parquet_metadata(
            parquet_metadata=metadata,
            stats_columns=plan,
            parquet_column_mapping=parquet_path_to_id_mapping(self._schema),
        ).to_serialized_dict()

    @contextmanager
    def _failures(self, path: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            text = storage.clean(error, self._target.io)
            raise Retriable(
                f"Iceberg table at {self._target.location}: writing {path} failed: {text}.",
                hint="Check that the storage can be reached and written to, and its free space.",
            ) from None


class _DataFile(OpenFile):
    """A file, with its partition's values."""

    def __init__(self, path: str, values: tuple[Any, ...]) -> None:
        super().__init__(path)
        self.values: Final = values


class _Partitioner:
    """Splits rows by the transforms of a partition spec, each value computed once in a batch."""

    # pyiceberg's own transforms of Arrow columns need the package pyiceberg-core, and its own
    # splitting does not take two transforms of one column (0.12).

    def __init__(self, spec: PartitionSpec, schema: Schema) -> None:
        self._spec = spec
        self._schema = schema
        self._kinds = [primitive(one.field_type) for one in spec.partition_type(schema).fields]
        self._sources = [
            (_place(schema.columns, one.source_id), self._transform(one.source_id, one.transform))
            for one in spec.fields
        ]

    def _transform(self, source_id: int, transform: Any) -> Callable[[Any], Any]:
        found: Callable[[Any], Any] = transform.transform(self._schema.find_type(source_id))
        return found

    def split(self, batch: pa.RecordBatch) -> Iterator[tuple[tuple[Any, ...], pa.RecordBatch]]:
        """Yield the partition values, in Iceberg's own representation, and the rows of each."""
        if not self._sources:
            yield (), batch
            return
        codes, values = self._coded(batch)
        if len(values) == 1:
            yield values[0], batch
            return
        order = pc.sort_indices(codes)
        sorted_codes = codes.take(order)
        ends = pc.run_end_encode(sorted_codes).run_ends.to_pylist()
        for start, end in zip([0, *ends][:-1], ends, strict=True):
            # Copies: a slice would keep its whole batch in memory, for rare partitions to the end.
            rows = batch.take(order.slice(start, end - start))
            yield values[sorted_codes[start].as_py()], rows

    def _coded(self, batch: pa.RecordBatch) -> tuple[pa.Array, list[tuple[Any, ...]]]:
        """Return a number for each row, and the partition values of each number."""
        codes, values = pa.array([0] * batch.num_rows, pa.int64()), [()]
        for place, transform in self._sources:
            column = batch.column(place[0])
            if place[1:]:
                column = pc.struct_field(column, list(place[1:]))
            encoded = column.dictionary_encode(null_encoding="encode")
            found = [transform(value) for value in _physical(encoded.dictionary)]
            # Different values may have the same result: bucket, day, truncate. Compared as text,
            # because 0.0 and -0.0 are two partitions.
            texts = [repr(value) for value in found]
            numbers: dict[str, int] = {}
            mapped = pa.array([numbers.setdefault(one, len(numbers)) for one in texts], pa.int64())
            more = mapped.take(encoded.indices)
            # Numbered again for each field: a product of all the counts might exceed 2^63.
            together = pc.add(pc.multiply(codes, len(numbers)), more).dictionary_encode()
            pairs = [divmod(one, len(numbers)) for one in together.dictionary.to_pylist()]
            distinct = list(dict(zip(texts, found, strict=True)).values())
            values = [(*values[left], distinct[right]) for left, right in pairs]
            codes = together.indices.cast(pa.int64())
        return codes, values

    def folder(self, values: tuple[Any, ...]) -> str:
        """Return the partition's folder, ``a=1/b=x/``; only a convention, and "" for long ones."""
        if not values:
            return ""
        path = self._spec.partition_to_path(Record(*values), self._schema)
        is_short = all(len(one) <= _MAX_FOLDER_CHARS for one in path.split("/"))
        return f"{path}/" if is_short else ""

    def serialized(self, values: tuple[Any, ...]) -> tuple[str | None, ...]:
        """Return the values in Iceberg's single-value binary form, as base64.

        Raises:
            InputError: a number near the smallest one was truncated below it.
        """
        try:
            return tuple(
                None if value is None else base64.b64encode(to_bytes(kind, value)).decode()
                for kind, value in zip(self._kinds, values, strict=True)
            )
        except (struct.error, ValueError):  # a whole number, a decimal
            raise InputError(
                "A value is too small for the truncate() of its partition.",
                hint="Partition the table by another transform, such as bucket(16, column).",
            ) from None


def _place(columns: Iterable[NestedField], source_id: int) -> tuple[int, ...]:
    """Return the positions that lead to a column, or to a field of a struct."""
    for at, one in enumerate(columns):
        if one.field_id == source_id:
            return (at,)
        if isinstance(one.field_type, StructType):
            with suppress(LookupError):
                return (at, *_place(one.field_type.fields, source_id))
    raise LookupError(source_id)


def _physical(column: pa.Array) -> list[Any]:
    """Return the values as transforms take them: times and dates as numbers."""
    kind = column.type
    if pa.types.is_timestamp(kind) or pa.types.is_time64(kind):
        column = column.cast(pa.int64())
    elif pa.types.is_date32(kind):
        column = column.cast(pa.int32())
    found: list[Any] = column.to_pylist()
    return found


def _texts(bounds: Mapping[int, bytes]) -> dict[int, str]:
    return {key: base64.b64encode(one).decode() for key, one in bounds.items()}
