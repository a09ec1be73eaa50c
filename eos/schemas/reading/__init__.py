"""Decodes the values of messages to columns, by the schemas in the registry."""

from eos.schemas.reading._value_reader import (
    VERSION_BYTES,
    DecodedValues,
    SchemaVersion,
    ValueReader,
    are_same_values,
    check_readable,
    value_reader,
    why_unknown,
)

__all__ = [
    "VERSION_BYTES",
    "DecodedValues",
    "SchemaVersion",
    "ValueReader",
    "are_same_values",
    "check_readable",
    "value_reader",
    "why_unknown",
]
