"""Pulsar's topics as tables of Spark: found, described, made, dropped, and read and written by SQL.

A namespace is a database, a topic a table. ``catalog.cli`` has the same without Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from catalog._describe import TopicDescription

if TYPE_CHECKING:
    from catalog._pulsar_catalog import PulsarCatalog

__all__ = ["PulsarCatalog", "TopicDescription"]


def __getattr__(name: str) -> object:
    # Late (PEP 562): the command line has no pyspark.
    if name == "PulsarCatalog":
        from catalog._pulsar_catalog import PulsarCatalog

        return PulsarCatalog
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
