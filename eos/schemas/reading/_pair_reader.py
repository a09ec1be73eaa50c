"""Reads key-value pairs, with a schema for each part. ``eos/schemas/_key_value.py`` has the format
of the registered schema."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eos.errors import IncompatibleSchema
from eos.schemas._key_value import is_inline, parts
from eos.schemas.reading._column_reader import ColumnReader, check_kind
from eos.wire.binary_columns import BinaryColumn, Int64s, Mask
from eos.wire.commands import SchemaInfo
from eos.wire.decoding import Spans, gather
from eos.wire.row_failures import RowFailures


class PairReader:
    """Reads pairs from a struct of binary ``key`` and ``value``; with the encoding ``inline``,
    ``value`` contains both. See ``ColumnReader``."""

    is_record = True

    def __init__(self, info: SchemaInfo, key: ColumnReader, value: ColumnReader) -> None:
        self.info = info
        self._readers = (key, value)
        self.type: pa.DataType = pa.struct([("key", key.type), ("value", value.type)])

    def read(self, values: pa.Array, writer: SchemaInfo) -> tuple[pa.Array, RowFailures]:
        """See ``ColumnReader``."""
        keys, data = values.flatten()
        failures: list[RowFailures] = []
        if is_inline(writer):
            keys, data, found = _split(data)
            failures.append(found)
        columns: list[pa.Array] = []
        named = zip(("key", "value"), self._readers, pair_of(writer), (keys, data), strict=True)
        for name, reader, one, part in named:
            check_kind(one, reader.info)
            column, found = reader.read(part, one)
            reasons = [f"In the {name}: {reason}" for reason in found.reasons]
            columns.append(column)
            failures.append(RowFailures(found.rows, reasons))
        merged = RowFailures.merged(failures)
        null = np.zeros(len(values), np.bool_)
        null[merged.rows] = True
        mask = pa.array(null) if len(merged) else None
        return pa.StructArray.from_arrays(columns, fields=list(self.type), mask=mask), merged


def pair_of(info: SchemaInfo) -> tuple[SchemaInfo, SchemaInfo]:
    """Return the schemas of key and value.

    Raises:
        IncompatibleSchema: the registered data can't be parsed.
    """
    key, value = parts(info)
    if key is None or value is None:
        raise IncompatibleSchema(
            "The registered schema of keys and values can't be parsed.",
            hint="Read the values as bytes.",
        )
    return key, value


def _split(values: pa.Array) -> tuple[pa.Array, pa.Array, RowFailures]:
    """Split ``[size i32][key][size i32][value]``; a size of -1 means null."""
    column = BinaryColumn.of(values)
    valid: Mask = values.is_valid().to_numpy(zero_copy_only=False)
    buffer = np.concatenate([np.frombuffer(column.data, np.uint8), np.zeros(4, np.uint8)])
    at, limit = column.offsets[:-1], column.offsets[1:]
    key, bad = _sized(buffer, at, limit)
    value, bad_value = _sized(buffer, key.at + np.maximum(key.size, 0), limit)
    bad |= bad_value | (value.at + np.maximum(value.size, 0) != limit)
    good = valid & ~bad
    parts = [gather(buffer, one, good) for one in (key, value)]
    return *parts, RowFailures.of(valid & bad, "The value is not a pair of a key and a value.")


def _sized(buffer: npt.NDArray[np.uint8], at: Int64s, limit: Int64s) -> tuple[Spans, Mask]:
    """Return the bytes that follow their size at ``at``, and which ones exceed ``limit``."""
    places = np.minimum(at, len(buffer) - 4)[:, None] + np.arange(4)
    size = np.ascontiguousarray(buffer[places]).view(">i4")[:, 0].astype(np.int64)
    bad: Mask = (limit - at < 4) | (size < -1) | (size > limit - at - 4)
    return Spans(np.where(bad, at, at + 4), np.where(bad, -1, size)), bad
