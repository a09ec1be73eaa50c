"""What values are, as the broker's schema registry knows it, and the rows' bytes by it."""

from eos.schemas._avro import AvroSchema, JsonSchema
from eos.schemas._base import Schema, SchemaWriter
from eos.schemas._describe import (
    changed_fields,
    definition_text,
    field_names,
    retyped_fields,
    side_by_side,
)
from eos.schemas._key_value import KeyValueSchema
from eos.schemas._layout import check_plain, check_same_layout
from eos.schemas._names import SCHEMA_NAMES, schema_of
from eos.schemas._primitives import PRIMITIVE_NAMES, PrimitiveSchema
from eos.schemas._protobuf import ProtobufSchema

__all__ = [
    "PRIMITIVE_NAMES",
    "SCHEMA_NAMES",
    "AvroSchema",
    "JsonSchema",
    "KeyValueSchema",
    "PrimitiveSchema",
    "ProtobufSchema",
    "Schema",
    "SchemaWriter",
    "changed_fields",
    "check_plain",
    "check_same_layout",
    "definition_text",
    "field_names",
    "retyped_fields",
    "schema_of",
    "side_by_side",
]
