"""Sinks for PySpark: ``PulsarSink``, ``DeltaSink``, and ``all_or_nothing`` for both at once."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from eos.committer import EpochResult
    from sinks._delta_sink import DeltaSink
    from sinks._pulsar_sink import PulsarSink
    from sinks.several import all_or_nothing

__all__ = ["DeltaSink", "EpochResult", "PulsarSink", "all_or_nothing"]

_WHERE: Final = {
    "DeltaSink": "sinks._delta_sink",
    "EpochResult": "eos.committer",
    "PulsarSink": "sinks._pulsar_sink",
    "all_or_nothing": "sinks.several",
}


def __getattr__(name: str) -> object:
    # Late (PEP 562): executors import sinks._task, and have neither pydantic nor deltalake.
    if name in _WHERE:
        return getattr(importlib.import_module(_WHERE[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
