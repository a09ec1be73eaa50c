"""Sinks for PySpark: ``PulsarSink``, ``DeltaSink``, ``all_or_nothing`` for both; and schemas."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from eos.committer import EpochResult
    from eos.schemas import AvroSchema, JsonSchema, KeyValueSchema, ProtobufSchema
    from sinks._delta_sink import DeltaSink
    from sinks._pulsar_sink import PulsarSink
    from sinks.several import all_or_nothing

__all__ = [
    "AvroSchema",
    "DeltaSink",
    "EpochResult",
    "JsonSchema",
    "KeyValueSchema",
    "ProtobufSchema",
    "PulsarSink",
    "all_or_nothing",
]

_WHERE: Final = {
    "AvroSchema": "eos.schemas",
    "DeltaSink": "sinks._delta_sink",
    "EpochResult": "eos.committer",
    "JsonSchema": "eos.schemas",
    "KeyValueSchema": "eos.schemas",
    "ProtobufSchema": "eos.schemas",
    "PulsarSink": "sinks._pulsar_sink",
    "all_or_nothing": "sinks.several",
}


def __getattr__(name: str) -> object:
    # Late (PEP 562): executors import sinks._task, and have neither pydantic nor deltalake.
    if name in _WHERE:
        return getattr(importlib.import_module(_WHERE[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
