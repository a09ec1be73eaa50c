"""Avro: what was written by any version of a schema, as columns of one of them."""

from __future__ import annotations

import pyarrow as pa

from eos.errors import ConfigurationError, IncompatibleSchema
from eos.wire.avro import AvroDecoder, AvroType, RecordOf, Union, arrow_type, parse_definition
from eos.wire.commands import SchemaInfo
from eos.wire.failures import Failures


class AvroReader:
    """Reads Avro. See ``ColumnReader``."""

    def __init__(self, reader: SchemaInfo) -> None:
        self._kind = parsed(reader)
        self.type: pa.DataType = arrow_type(self._kind)
        self.is_record = is_record(self._kind)
        self._decoders: dict[SchemaInfo, AvroDecoder] = {}

    def read(self, values: pa.Array, writer: SchemaInfo) -> tuple[pa.Array, Failures]:
        """See ``ColumnReader``."""
        if writer not in self._decoders:
            self._decoders[writer] = AvroDecoder(parsed(writer), self._kind)
        return self._decoders[writer].decode(values)


def parsed(info: SchemaInfo) -> AvroType:
    """The type that a registered definition declares.

    Raises:
        IncompatibleSchema: it is none that we understand.
    """
    try:
        return parse_definition(info.data.decode())
    except (ConfigurationError, UnicodeDecodeError) as error:
        raise IncompatibleSchema(
            "The registered definition is not Avro's language.",
            hint="Read the values as bytes, or give a schema of your own.",
        ) from error


def is_record(kind: AvroType) -> bool:
    """Whether it is a record, which may be null."""
    branches = [kind]
    if isinstance(kind, Union):
        branches = [one for n, one in enumerate(kind.branches) if n != kind.null_index]
    return len(branches) == 1 and isinstance(branches[0], RecordOf)
