"""The options of sinks: a model for each, and one clear error for each wrong value."""

from eos.sinks.options._base import SinkArguments, SinkOptions
from eos.sinks.options._sinks import (
    DeltaSinkArguments,
    DeltaSinkOptions,
    IcebergSinkArguments,
    IcebergSinkOptions,
    PostgresSinkArguments,
    PostgresSinkOptions,
    PulsarSinkArguments,
    PulsarSinkOptions,
    TableSinkOptions,
)
from eos.sinks.options._writer import WriterOptions

__all__ = [
    "DeltaSinkArguments",
    "DeltaSinkOptions",
    "IcebergSinkArguments",
    "IcebergSinkOptions",
    "PostgresSinkArguments",
    "PostgresSinkOptions",
    "PulsarSinkArguments",
    "PulsarSinkOptions",
    "SinkArguments",
    "SinkOptions",
    "TableSinkOptions",
    "WriterOptions",
]
