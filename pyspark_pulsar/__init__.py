"""Makes ``format("pulsar")`` known: Spark imports all top-level modules named ``pyspark_*``."""

from eos.sources.data_source import PulsarDataSource as DefaultSource

__all__ = ["DefaultSource"]
