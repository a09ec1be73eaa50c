"""Decodes the values of messages to columns, by the schemas in the registry."""

from eos.schemas.reading._value_reader import (
    DecodedValues,
    SchemaVersion,
    ValueReader,
    are_same_values,
    check_readable,
    is_version,
    value_reader,
    why_unknown,
)
from eos.wire.avro import TooMuchAtOnce

__all__ = [
    "DecodedValues",
    "SchemaVersion",
    "TooMuchAtOnce",
    "ValueReader",
    "are_same_values",
    "check_readable",
    "is_version",
    "value_reader",
    "why_unknown",
]
