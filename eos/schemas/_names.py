"""The schemas that have a name."""

from __future__ import annotations

from typing import Final

from eos.errors import ConfigurationError
from eos.schemas._avro import AvroSchema, JsonSchema
from eos.schemas._base import Schema
from eos.schemas._key_value import KeyValueSchema
from eos.schemas._primitives import PRIMITIVE_NAMES, PrimitiveSchema
from eos.schemas._protobuf import ProtobufSchema

SCHEMA_NAMES: Final = (*PRIMITIVE_NAMES, "json", "avro", "protobuf", "key_value")


def schema_of(name: str) -> Schema | None:
    """The schema of that name; None for ``bytes``: values as they are, and nothing registered.

    Raises:
        ConfigurationError: there is none; names those that there are.
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
        f"There is no schema {name!r}.", hint=f"There are: {', '.join(SCHEMA_NAMES)}."
    )
