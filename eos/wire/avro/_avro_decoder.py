"""Decodes Avro data to columns: each field is read for all rows at once.

Source: the Avro 1.12 specification, "Binary encoding". The results are those of ``fastavro``
(tested), except that rows are malformed for data that it accepts against the specification: a
boolean of 7, an ``int`` of 40 bits, a number of eleven bytes, bytes after the datum.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from eos.wire.avro._arrow_types import arrow_type
from eos.wire.avro._avro_cursor import Cursor
from eos.wire.avro._resolution import resolve
from eos.wire.avro._types import AvroType
from eos.wire.binary_columns import BinaryColumn, valid_rows
from eos.wire.row_failures import RowFailures

_CHUNK_ROWS = 1 << 14  # each may get 16 KiB of default values
_CHUNK_BYTES = 4 << 20  # items of lists take a hundred times their size while they are read


class AvroDecoder:
    """Reads data of one schema (``writer``) as another one (``reader``).

    Attributes:
        type: of the resulting column.

    Raises:
        IncompatibleSchema: the schemas don't match; the error names the field.
    """

    def __init__(self, writer: AvroType, reader: AvroType) -> None:
        self.type = arrow_type(reader)
        self._node = resolve(writer, reader)

    def decode(self, values: pa.Array) -> tuple[pa.Array, RowFailures]:
        """Decode binary ``values``, one datum each, to a column, and return the malformed rows.

        Null and malformed values are null in the column.
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
