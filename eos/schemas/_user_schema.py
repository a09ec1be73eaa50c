"""The user's schema: by its name in an option, and in the form of the registry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from eos.errors import ConfigurationError
from eos.schemas._avro_schema import AvroSchema, JsonSchema
from eos.schemas._key_value import KeyValueSchema
from eos.schemas._primitive_schema import PRIMITIVE_NAMES, PrimitiveSchema
from eos.schemas._protobuf_schema import ProtobufSchema
from eos.schemas._schema_base import Schema
from eos.schemas._schema_properties import is_inline, pair_info, pair_of
from eos.wire.commands import SchemaInfo, SchemaType

BYTES: Final = SchemaInfo(type=SchemaType.NONE)
_OTHERS: Final[dict[str, Callable[[], Schema]]] = {
    "json": JsonSchema,
    "avro": AvroSchema,
    "protobuf": ProtobufSchema,
    "key_value": KeyValueSchema,
}
SCHEMA_NAMES: Final = (*PRIMITIVE_NAMES, *_OTHERS)


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
    if name in _OTHERS:
        return _OTHERS[name]()
    raise ConfigurationError(
        f"Schema {name!r} does not exist.", hint=f"Use one of {', '.join(SCHEMA_NAMES)}."
    )


def declared(schema: Schema, registered: SchemaInfo) -> SchemaInfo:
    """Return the user's schema in the registry's form; what it leaves open is as in ``registered``.

    Raises:
        ConfigurationError: the schema has no definition.
    """
    match schema:
        case AvroSchema(definition=str() as definition):
            return SchemaInfo(data=definition.encode(), type=schema.type)
        case PrimitiveSchema():
            return schema.info
        case ProtobufSchema(message=message) if message:
            return schema.info
        case KeyValueSchema(key=Schema() as key, value=Schema() as value):
            parts, encoding = (BYTES, BYTES), str(schema.encoding or "separated")
            if registered.type == SchemaType.KEY_VALUE:
                parts = pair_of(registered)
                # The messages are as the registry says, whatever the user's schema says.
                encoding = "inline" if is_inline(registered) else "separated"
            return pair_info(declared(key, parts[0]), declared(value, parts[1]), encoding)
    raise ConfigurationError(
        f"{type(schema).__name__}() has no definition, which reading needs.",
        hint="Give it a definition, or omit the schema to use the registered one.",
    )
