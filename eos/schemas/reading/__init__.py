"""The reading half of schemas: the values of messages -> columns, by what the registry knows."""

from eos.schemas.reading._values import (
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
