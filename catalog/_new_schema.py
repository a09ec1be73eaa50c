"""The schema of a new topic."""

from __future__ import annotations

import pyarrow as pa

from eos.errors import ConfigurationError
from eos.schemas import AvroSchema, JsonSchema, PrimitiveSchema, ProtobufSchema, Schema, schema_of
from eos.wire.commands import SchemaInfo


def new_schema(schema: Schema | str, row: pa.StructType | None) -> SchemaInfo | None:
    """Return the schema to register; None: values are bytes.

    Args:
        schema: a name, or the user's own schema.
        row: the columns of the rows, for names such as ``avro``.

    Raises:
        ConfigurationError, InputError: the schema is unknown, or the columns don't fit it.
    """
    wanted = schema_of(schema) if isinstance(schema, str) else schema
    known = _known(wanted)
    if wanted is None or known is not None:
        if row is not None:
            raise ConfigurationError(f"The schema {schema!r} takes no columns.")
        return known
    if row is None:
        raise ConfigurationError(
            f"The schema {schema!r} needs columns.",
            hint="Set them: columns='id BIGINT, name STRING'.",
        )
    return wanted.writer(row).info


def _known(schema: Schema | None) -> SchemaInfo | None:
    """Return the schema if it is complete without columns."""
    match schema:
        case PrimitiveSchema() | ProtobufSchema():
            return schema.info
        case AvroSchema(definition=str(text)) | JsonSchema(definition=str(text)):
            return SchemaInfo(data=text.encode(), type=schema.type)
    return None
