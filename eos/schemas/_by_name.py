"""Schemas by their names, as users give them in an option."""

from __future__ import annotations

from typing import Final

from eos.errors import ConfigurationError
from eos.schemas._avro_schema import AvroSchema, JsonSchema
from eos.schemas._key_value import KeyValueSchema
from eos.schemas._primitive_schema import PRIMITIVE_NAMES, PrimitiveSchema
from eos.schemas._protobuf_schema import ProtobufSchema
from eos.schemas._schema_base import Schema

SCHEMA_NAMES: Final = (*PRIMITIVE_NAMES, "json", "avro", "protobuf", "key_value")


def schema_of(name: str) -> Schema | None:
    """Return the schema of that name; None for ``bytes``: unchanged values, without a registered
    schema.

    Raises:
        ConfigurationError: the name is unknown; the error lists the known ones.
    """
    if name == "bytes":
        return None
    if name in PRIMITIVE_NAMES:
        return PrimitiveSchema(name)
    match name:
        case "json":
            return JsonSchema()
        case "avro":
            return AvroSchema()
        case "protobuf":
            return ProtobufSchema()
        case "key_value":
            return KeyValueSchema()
    raise ConfigurationError(
        f"Schema {name!r} does not exist.", hint=f"Use one of {', '.join(SCHEMA_NAMES)}."
    )
