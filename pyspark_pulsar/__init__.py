"""Makes ``format("pulsar")`` known: Spark imports all top-level modules named ``pyspark_*``."""

from eos.errors import ConfigurationError

# Spark imports them in one loop: an error here would hide the data sources of other packages.
try:
    from eos.sinks.datasource_compat import DataSource
except ConfigurationError:  # before 4.0, or not supported
    __all__ = []
else:
    __all__ = ["DefaultSource"]
    try:
        from eos.sources.data_source import PulsarDataSource as DefaultSource
    except ImportError as error:
        _REASON = str(error)

        class DefaultSource(DataSource):  # type: ignore[no-redef]
            """Says at its use why there is no ``format("pulsar")``."""

            def __init__(self, options: dict[str, str]) -> None:  # noqa: ARG002
                raise ConfigurationError(
                    f"format(\"pulsar\") can't run in the Python of Spark's workers: {_REASON}.",
                    hint="What it needs there is in docs/deployment.md, Executors.",
                )

            @classmethod
            def name(cls) -> str:
                """Return the name for ``format``."""
                return "pulsar"
