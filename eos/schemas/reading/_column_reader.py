"""The interface of column readers, and columns from Python rows."""

from __future__ import annotations

from typing import Any, Final, Protocol

import pyarrow as pa

from eos.errors import IncompatibleSchema
from eos.wire.commands import SchemaInfo, SchemaType
from eos.wire.row_failures import RowFailures

MAX_OBJECT_BYTES: Final = 8 << 20
"""The maximum size of a value that is decoded in Python, to objects thirty times as large."""

TOO_LONG: Final = (
    f"The value is longer than {MAX_OBJECT_BYTES >> 20} MiB, the limit of values decoded in Python."
)

_WRONG = (pa.ArrowException, ValueError, TypeError, OverflowError)


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
        """


def check_kind(writer: SchemaInfo, reader: SchemaInfo) -> None:
    """Raise ``IncompatibleSchema`` if ``writer`` and ``reader`` are different kinds of schema."""
    if reader.type == SchemaType.NONE or writer.type == reader.type:
        return
    if (writer.type, reader.type) == (SchemaType.PROTOBUF, SchemaType.PROTOBUF_NATIVE):
        return
    raise IncompatibleSchema(
        "They are different kinds of schema.",
        hint="Read the values as bytes: no schema reads both kinds.",
    )


def as_column(rows: list[Any], kind: pa.DataType) -> tuple[pa.Array, list[int]]:
    """Return a column of ``rows``, and the numbers of rows that don't fit, which are null."""
    try:
        return pa.array(rows, kind), []
    except _WRONG:
        bad = [number for number, row in enumerate(rows) if not _fits(row, kind)]
    wrong = set(bad)
    return pa.array([None if n in wrong else row for n, row in enumerate(rows)], kind), bad


def _fits(row: Any, kind: pa.DataType) -> bool:
    try:
        pa.array([row], kind)
    except _WRONG:
        return False
    return True
