"""Encodes and decodes Arrow columns in Avro's binary encoding, without a loop over rows."""

from eos.wire.avro._arrow_types import (
    MAX_FIELDS,
    arrow_type,
    check_fits,
    fits_decimal128,
    has_members,
    members,
)
from eos.wire.avro._avro_cursor import TooMuchAtOnce
from eos.wire.avro._avro_decoder import AvroDecoder
from eos.wire.avro._avro_encoder import encode_avro
from eos.wire.avro._defaults import check_defaults
from eos.wire.avro._types import (
    JAVA_CHAR,
    JAVA_NUMBERS,
    MAX_DEPTH,
    NO_DEFAULT,
    AvroType,
    Decimal,
    Enum,
    Field,
    Fixed,
    ListOf,
    MapOf,
    Primitive,
    RecordOf,
    Union,
    describe_type,
    field_text,
    parse_definition,
    unreadable,
    without_comments,
)

__all__ = [
    "JAVA_CHAR",
    "JAVA_NUMBERS",
    "MAX_DEPTH",
    "MAX_FIELDS",
    "NO_DEFAULT",
    "AvroDecoder",
    "AvroType",
    "Decimal",
    "Enum",
    "Field",
    "Fixed",
    "ListOf",
    "MapOf",
    "Primitive",
    "RecordOf",
    "TooMuchAtOnce",
    "Union",
    "arrow_type",
    "check_defaults",
    "check_fits",
    "describe_type",
    "encode_avro",
    "field_text",
    "fits_decimal128",
    "has_members",
    "members",
    "parse_definition",
    "unreadable",
    "without_comments",
]
