"""Reading Pulsar topics into Spark: ``spark.read.format("pulsar")``, ``spark.readStream``."""

# First: on PySpark 3.5 it says that there are no data sources in Python.
import eos.sinks.datasource_compat  # noqa: F401
from eos.sources.data_source import PulsarDataSource

__all__ = ["PulsarDataSource"]
