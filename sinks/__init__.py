"""Sinks for PySpark. ``PulsarSink`` is what users import."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from eos.committer import EpochResult
    from sinks.pulsar_sink import PulsarSink

__all__ = ["EpochResult", "PulsarSink"]


def __getattr__(name: str) -> object:
    # Late (PEP 562): executors import sinks.task, and have neither pydantic nor deltalake.
    if name == "PulsarSink":
        from sinks.pulsar_sink import PulsarSink

        return PulsarSink
    if name == "EpochResult":
        from eos.committer import EpochResult

        return EpochResult
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
