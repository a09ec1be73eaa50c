"""The interface of what reads values."""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa

from eos.errors import IncompatibleSchema
from eos.wire.commands import SchemaInfo, SchemaType
from eos.wire.failures import Failures


class ColumnReader(Protocol):
    """Reads the values of one schema as a column.

    Attributes:
        info: the schema that is read.
        type: of the column.
        is_record: the column is a struct, and its fields are the columns of a row.
    """

    info: SchemaInfo
    type: pa.DataType
    is_record: bool

    def read(self, values: pa.Array, writer: SchemaInfo) -> tuple[pa.Array, Failures]:
        """``values``, binary, that were written by ``writer``: the column, and the rows that are
        malformed. A row is null where it is null in ``values``, and where it is malformed.

        Raises:
            IncompatibleSchema: nothing that was written by ``writer`` can be read.
        """


def check_kind(writer: SchemaInfo, reader: SchemaInfo) -> None:
    """Raise ``IncompatibleSchema`` when values of another kind are to be read."""
    if reader.type == SchemaType.NONE or writer.type == reader.type:
        return
    if (writer.type, reader.type) == (SchemaType.PROTOBUF, SchemaType.PROTOBUF_NATIVE):
        return
    raise IncompatibleSchema(
        "They are of another kind.", hint="Read the values as bytes: no schema reads both kinds."
    )
