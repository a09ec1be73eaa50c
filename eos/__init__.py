"""Exactly-once, all-or-nothing writes from PySpark to Apache Pulsar.

The public classes are exported here. Other public modules: ``eos.errors``, ``eos.metrics``,
``eos.tracing``, ``eos.testing``, ``eos.chaos`` and ``eos.recovery``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from eos.catalog.pulsar_catalog import PulsarCatalog
    from eos.client import KeyedState, PulsarClient
    from eos.client.aio import AsyncPulsarClient
    from eos.committer import EpochResult
    from eos.events import EpochListener
    from eos.schemas import AvroSchema, JsonSchema, KeyValueSchema, ProtobufSchema
    from eos.sinks.all_or_nothing import all_or_nothing
    from eos.sinks.delta_sink import DeltaSink
    from eos.sinks.iceberg_sink import IcebergSink
    from eos.sinks.postgres_sink import PostgresSink
    from eos.sinks.pulsar_sink import PulsarSink
    from eos.sources.history_frame import history
    from eos.sources.tiered_storage import TieredStorage
    from eos.transport.auth import Auth
    from eos.transport.message_keys import Encryption

__version__ = "0.2.0"

__all__ = [
    "AsyncPulsarClient",
    "Auth",
    "AvroSchema",
    "DeltaSink",
    "Encryption",
    "EpochListener",
    "EpochResult",
    "IcebergSink",
    "JsonSchema",
    "KeyValueSchema",
    "KeyedState",
    "PostgresSink",
    "ProtobufSchema",
    "PulsarCatalog",
    "PulsarClient",
    "PulsarSink",
    "TieredStorage",
    "all_or_nothing",
    "history",
]

_MODULES: Final = {
    "AsyncPulsarClient": "eos.client.aio",
    "Auth": "eos.transport.auth",
    "AvroSchema": "eos.schemas",
    "DeltaSink": "eos.sinks.delta_sink",
    "Encryption": "eos.transport.message_keys",
    "EpochListener": "eos.events",
    "EpochResult": "eos.committer",
    "IcebergSink": "eos.sinks.iceberg_sink",
    "JsonSchema": "eos.schemas",
    "KeyValueSchema": "eos.schemas",
    "KeyedState": "eos.client",
    "PostgresSink": "eos.sinks.postgres_sink",
    "ProtobufSchema": "eos.schemas",
    "PulsarCatalog": "eos.catalog.pulsar_catalog",
    "PulsarClient": "eos.client",
    "PulsarSink": "eos.sinks.pulsar_sink",
    "TieredStorage": "eos.sources.tiered_storage",
    "all_or_nothing": "eos.sinks.all_or_nothing",
    "history": "eos.sources.history_frame",
}


def __getattr__(name: str) -> object:
    # Lazy (PEP 562): executors import eos without pydantic and deltalake installed.
    if name in _MODULES:
        return getattr(importlib.import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
