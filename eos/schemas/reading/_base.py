"""The interface of what reads values."""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa

from eos.wire.commands import SchemaInfo
from eos.wire.failures import Failures


class ColumnReader(Protocol):
    """Reads the values of one schema as a column.

    Attributes:
        type: of the column.
        is_record: the column is a struct, and its fields are the columns of a row.
    """

    type: pa.DataType
    is_record: bool

    def read(self, values: pa.Array, writer: SchemaInfo) -> tuple[pa.Array, Failures]:
        """``values``, binary, that were written by ``writer``: the column, and the rows that are
        malformed. A row is null where it is null in ``values``, and where it is malformed.

        Raises:
            IncompatibleSchema: nothing that was written by ``writer`` can be read.
        """
