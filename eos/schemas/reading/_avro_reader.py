"""Reads Avro values of any version of a schema as columns of one version."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from eos.errors import ConfigurationError, IncompatibleSchema
from eos.schemas._schema_properties import framing_of
from eos.wire.avro import AvroDecoder, AvroType, RecordOf, Union, arrow_type, parse_definition
from eos.wire.binary_columns import BinaryColumn, Mask
from eos.wire.commands import SchemaInfo
from eos.wire.decoding import Spans, gather
from eos.wire.row_failures import RowFailures


class AvroReader:
    """Reads Avro. See ``ColumnReader``."""

    def __init__(self, reader: SchemaInfo) -> None:
        self.info = reader
        self._kind = parsed(reader)
        self.type: pa.DataType = arrow_type(self._kind)
        self.is_record = is_record(self._kind)
        self._decoders: dict[SchemaInfo, AvroDecoder] = {}

    def read(self, values: pa.Array, writer: SchemaInfo) -> tuple[pa.Array, RowFailures]:
        """See ``ColumnReader``."""
        if writer not in self._decoders:
            self._decoders[writer] = AvroDecoder(parsed(writer), self._kind)
        values, short = _unframed(values, framing_of(writer))
        column, found = self._decoders[writer].decode(values)
        return column, RowFailures.merged([short, found]) if len(short) else found


def _unframed(values: pa.Array, size: int) -> tuple[pa.Array, RowFailures]:
    """Return ``values`` without their first ``size`` bytes; null for shorter values."""
    if not size:
        return values, RowFailures.none()
    column = BinaryColumn.of(values)
    valid: Mask = values.is_valid().to_numpy(zero_copy_only=False)
    short: Mask = valid & (column.lengths < size)
    good = valid & ~short
    # ``pc.binary_slice`` fails on shorter values (pyarrow 26).
    skip = np.where(good, size, 0)
    spans = Spans(column.offsets[:-1] + skip, column.lengths - skip)
    why = f"The value is shorter than the {size} bytes of framing that its schema names."
    return gather(np.frombuffer(column.data, np.uint8), spans, good), RowFailures.of(short, why)


def parsed(info: SchemaInfo) -> AvroType:
    """Return the type that a registered definition declares.

    Raises:
        IncompatibleSchema: the definition can't be parsed.
    """
    try:
        return parse_definition(info.data.decode())
    except (ConfigurationError, UnicodeDecodeError) as error:
        why = error.message if isinstance(error, ConfigurationError) else "It is not UTF-8."
        raise IncompatibleSchema(
            f"The registered definition is not a valid Avro definition. {why}",
            hint="Read the values as bytes, or give your own schema.",
        ) from error


def is_record(kind: AvroType) -> bool:
    """Whether ``kind`` is a record, nullable or not."""
    branches = [kind]
    if isinstance(kind, Union):
        branches = [one for n, one in enumerate(kind.branches) if n != kind.null_index]
    return len(branches) == 1 and isinstance(branches[0], RecordOf)
