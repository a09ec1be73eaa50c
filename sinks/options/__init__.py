"""The options of sinks: a model for each, and one clear error for each wrong value."""

from sinks.options._base import SinkArguments, SinkOptions
from sinks.options._delta import DeltaSinkArguments, DeltaSinkOptions
from sinks.options._pulsar import PulsarSinkArguments, PulsarSinkOptions
from sinks.options._writer import WriterOptions

__all__ = [
    "DeltaSinkArguments",
    "DeltaSinkOptions",
    "PulsarSinkArguments",
    "PulsarSinkOptions",
    "SinkArguments",
    "SinkOptions",
    "WriterOptions",
]
