"""The reading half of schemas: the values of messages -> columns, by what the registry knows."""

from eos.schemas.reading._values import (
    DecodedValues,
    SchemaVersion,
    ValueReader,
    check_readable,
    value_reader,
)

__all__ = [
    "DecodedValues",
    "SchemaVersion",
    "ValueReader",
    "check_readable",
    "value_reader",
]
