"""Reading Pulsar topics into Spark: ``spark.read.format("pulsar")``, ``spark.readStream``."""

from eos.sources.data_source import PulsarDataSource

__all__ = ["PulsarDataSource"]
