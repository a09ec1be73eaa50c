"""Avro data as columns: each field is read of all rows at once.

Source: the Avro 1.12 specification, "Binary encoding". What ``fastavro`` reads of the same data
(tested); where it takes what the specification does not allow (a boolean of 7, an ``int`` of 40
bits, a number of eleven bytes, bytes behind the datum), the row is malformed.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from eos.wire.avro._arrow_types import arrow_type
from eos.wire.avro._cursor import Cursor
from eos.wire.avro._resolution import resolve
from eos.wire.avro._types import AvroType
from eos.wire.columns import BinaryColumn, valid_rows
from eos.wire.row_failures import RowFailures

_CHUNK_ROWS = 1 << 14  # each may have 16 KiB of defaults that were not written
_CHUNK_BYTES = 4 << 20  # the items of lists take a hundred times their bytes while they are read


class AvroDecoder:
    """Reads what was written by one schema as another one.

    Attributes:
        type: of the column that is read.

    Raises:
        IncompatibleSchema: it can't be; the field is named.
    """

    def __init__(self, writer: AvroType, reader: AvroType) -> None:
        self.type = arrow_type(reader)
        self._node = resolve(writer, reader)

    def decode(self, values: pa.Array) -> tuple[pa.Array, RowFailures]:
        """``values``, binary, each one datum: a column, and the rows that are malformed.

        A row is null where it is null in ``values``, and where it is malformed.
        """
        rows = max(1, len(values) * _CHUNK_BYTES // max(1, values.nbytes))
        rows = min(rows, _CHUNK_ROWS)
        columns: list[pa.Array] = []
        failures: list[RowFailures] = []
        for start in range(0, len(values), rows):
            column, found = self._decode(values.slice(start, rows))
            columns.append(column)
            failures.append(RowFailures(found.rows + start, found.reasons))
        every = pa.concat_arrays(columns) if columns else pa.array([], self.type)
        return every, RowFailures.merged(failures)

    def _decode(self, values: pa.Array) -> tuple[pa.Array, RowFailures]:
        cursor, where = Cursor.over(BinaryColumn.of(values)), valid_rows(values)
        column = self._node.read(cursor, where)
        left = cursor.at != cursor.limit
        cursor.fail(left, "", "is longer than its schema says")
        bad = np.flatnonzero(cursor.reason)
        if not len(bad):
            return column, RowFailures.none()
        texts = ["", *cursor.reasons]
        reasons = [texts[number] for number in cursor.reason[bad].tolist()]
        order = pa.array(np.arange(len(column)), mask=cursor.reason > 0)
        return column.take(order), RowFailures(bad, reasons)
