"""Schemas: their definitions in the broker's schema registry, and the encoding of rows by them."""

from eos.schemas._avro_schema import AvroSchema, JsonSchema
from eos.schemas._key_value import KeyValueSchema
from eos.schemas._primitive_schema import PRIMITIVE_NAMES, PrimitiveSchema
from eos.schemas._protobuf_schema import ProtobufSchema
from eos.schemas._schema_base import Schema, SchemaWriter
from eos.schemas._schema_properties import check_plain, check_same_layout
from eos.schemas._schema_text import (
    changed_fields,
    coarser_fields,
    definition_text,
    field_names,
    retyped_fields,
    side_by_side,
    single_type,
)
from eos.schemas._user_schema import SCHEMA_NAMES, schema_of

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
    "coarser_fields",
    "definition_text",
    "field_names",
    "retyped_fields",
    "schema_of",
    "side_by_side",
    "single_type",
]
