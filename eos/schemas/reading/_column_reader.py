"""The interface of column readers, columns from Python rows, and pairs of columns."""

from __future__ import annotations

from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa

from eos.errors import IncompatibleSchema
from eos.schemas._schema_properties import is_inline, pair_of
from eos.wire.avro import TooMuchAtOnce
from eos.wire.binary_columns import BinaryColumn, Int64s, Mask, RowFailures
from eos.wire.byte_rows import Bytes
from eos.wire.commands import SchemaInfo, SchemaType
from eos.wire.decoding import Spans, gather

# Of a value that is decoded in Python, to objects thirty times as large.
MAX_OBJECT_BYTES: Final = 8 << 20
TOO_LONG: Final = (
    f"The value is longer than {MAX_OBJECT_BYTES >> 20} MiB, the limit of values decoded in Python."
)
MAX_FIELD_VALUES: Final = 1_000_000
MAX_CELLS: Final = 1 << 24  # of columns that are made at once, with eight bytes or more each

_WRONG = (pa.ArrowException, ValueError, TypeError, OverflowError)


class ValueTooLarge(Exception):
    """Raised when a value would become too many objects; its text is the reason."""


class FieldBudget:
    """Limits the fields of a value that is decoded in Python, and of all that are decoded at
    once."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Begin to decode values."""
        self._fields = self._cells = 0  # of the values before
        self._left, self._cells_left = MAX_FIELD_VALUES, MAX_CELLS

    def renew(self) -> None:
        """Begin the next value.

        Raises:
            TooMuchAtOnce: those before it have as many fields as one value may have.
        """
        self._fields += MAX_FIELD_VALUES - self._left
        self._cells += MAX_CELLS - self._cells_left
        if self._fields > MAX_FIELD_VALUES or self._cells > MAX_CELLS:
            raise TooMuchAtOnce
        self._left, self._cells_left = MAX_FIELD_VALUES, MAX_CELLS

    def spend(self, count: int) -> None:
        """Count more fields; raise ``ValueTooLarge`` if they exceed the limit."""
        self._left -= count
        if self._left < 0:
            raise ValueTooLarge(f"The value has more than {MAX_FIELD_VALUES} fields in all.")

    def spend_cells(self, count: int) -> None:
        """Count the cells of a null record, which is no object; raise as ``spend``."""
        self._cells_left -= count
        if self._cells_left < 0:
            raise ValueTooLarge(f"The value has more than {MAX_CELLS} empty fields.")


class ColumnReader(Protocol):
    """Decodes the values of one schema to a column.

    Attributes:
        info: the schema.
        type: the type of the column.
        is_record: the column is a struct whose fields become the columns of a row.
    """

    info: SchemaInfo
    type: pa.DataType
    is_record: bool

    def read(self, values: pa.Array, writer: SchemaInfo) -> tuple[pa.Array, RowFailures]:
        """Decode binary ``values`` that were written with the schema ``writer``. Return the column
        and the malformed rows. Malformed and null values are null in the column.

        Raises:
            IncompatibleSchema: values of ``writer`` can't be read at all.
            TooMuchAtOnce: several values together would become too large columns.
        """


def check_kind(writer: SchemaInfo, reader: SchemaInfo) -> None:
    """Raise ``IncompatibleSchema`` if ``writer`` and ``reader`` are different kinds of schema."""
    if reader.type == SchemaType.NONE or writer.type == reader.type:
        return
    # They have the same bytes; PROTOBUF's registered definition lacks the numbers of fields.
    if (writer.type, reader.type) == (SchemaType.PROTOBUF, SchemaType.PROTOBUF_NATIVE):
        return
    raise IncompatibleSchema(
        "They are different kinds of schema.",
        hint="Read the values as bytes: no schema reads both kinds.",
    )


def as_column(
    rows: list[Any], kind: pa.DataType, reasons: dict[int, str], unfit: str
) -> tuple[pa.Array, RowFailures]:
    """Return a column of ``rows``, and the malformed ones: those of ``reasons``, and those that
    don't fit, which are null, with the reason ``unfit``."""
    try:
        column = pa.array(rows, kind)
    except _WRONG:
        bad = {number: unfit for number, row in enumerate(rows) if not _fits(row, kind)}
        column = pa.array([None if n in bad else row for n, row in enumerate(rows)], kind)
        reasons = reasons | bad
    return column, RowFailures.by_row(reasons)


def _fits(row: Any, kind: pa.DataType) -> bool:
    try:
        pa.array([row], kind)
    except _WRONG:
        return False
    return True


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
        # A malformed part makes the whole pair null.
        null = np.zeros(len(values), np.bool_)
        null[merged.rows] = True
        mask = pa.array(null) if len(merged) else None
        return pa.StructArray.from_arrays(columns, fields=list(self.type), mask=mask), merged


def _split(values: pa.Array) -> tuple[pa.Array, pa.Array, RowFailures]:
    # ``[size i32][key][size i32][value]``; a size of -1 means null.
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


def _sized(buffer: Bytes, at: Int64s, limit: Int64s) -> tuple[Spans, Mask]:
    # Of a row without room for a size, bytes of other rows are read, and ignored.
    places = np.minimum(at, len(buffer) - 4)[:, None] + np.arange(4)
    size = np.ascontiguousarray(buffer[places]).view(">i4")[:, 0].astype(np.int64)
    bad: Mask = (limit - at < 4) | (size < -1) | (size > limit - at - 4)
    return Spans(np.where(bad, at, at + 4), np.where(bad, -1, size)), bad
