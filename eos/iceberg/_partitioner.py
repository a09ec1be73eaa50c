"""Splits rows by the transforms of a partition spec."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.conversions import to_bytes
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import NestedField, StructType

from eos.iceberg.data_file_entry import primitive

# A longer part of a path does not fit into the 255 bytes of most file systems.
_MAX_FOLDER_CHARS: Final = 200


class Partitioner:
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
        order = pc.sort_indices(codes)
        sorted_codes = codes.take(order)
        rows = batch.take(order)
        ends = pc.run_end_encode(sorted_codes).run_ends.to_pylist()
        for start, end in zip([0, *ends][:-1], ends, strict=True):
            yield values[sorted_codes[start].as_py()], rows.slice(start, end - start)

    def _coded(self, batch: pa.RecordBatch) -> tuple[pa.Array, list[tuple[Any, ...]]]:
        """Return a number for each row, and the partition values of each number."""
        codes, values = pa.array([0] * batch.num_rows, pa.int64()), [()]
        for place, transform in self._sources:
            column = batch.column(place[0])
            if place[1:]:
                column = pc.struct_field(column, list(place[1:]))
            encoded = column.dictionary_encode(null_encoding="encode")
            found = [transform(value) for value in _physical(encoded.dictionary)]
            numbers: dict[Any, int] = {}
            mapped = pa.array([numbers.setdefault(one, len(numbers)) for one in found], pa.int64())
            more = mapped.take(encoded.indices)
            together = pc.add(pc.multiply(codes, len(numbers)), more).dictionary_encode()
            pairs = [divmod(one, len(numbers)) for one in together.dictionary.to_pylist()]
            distinct = list(numbers)
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
        """Return the values in Iceberg's single-value binary form, as base64."""
        return tuple(
            None if value is None else base64.b64encode(to_bytes(kind, value)).decode()
            for kind, value in zip(self._kinds, values, strict=True)
        )


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
