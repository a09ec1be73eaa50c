"""Makes ``format("pulsar")`` known: Spark imports all top-level modules named ``pyspark_*``."""

from eos.errors import ConfigurationError

# Spark imports them in one loop: an error here would hide the data sources of other packages.
try:
    from eos.sources.data_source import PulsarDataSource as DefaultSource
except ConfigurationError:  # this release of Spark is not supported
    __all__ = []
else:
    __all__ = ["DefaultSource"]
