"""Reading Pulsar topics into Spark: ``spark.read.format("pulsar")``, ``spark.readStream``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from eos.sources.data_source import PulsarDataSource

__all__ = ["PulsarDataSource"]


def __getattr__(name: str) -> object:
    # Lazy: an archive is made without Spark.
    if name == "PulsarDataSource":
        from eos.sources.data_source import PulsarDataSource

        return PulsarDataSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
