"""A data source for one topic, with its options bound in: Spark keeps none for a table.

``CREATE TABLE ... USING pulsar OPTIONS (...)`` loses them (measured, PySpark 4.2). What Spark does
hand over for a table are properties of its own, which are no options of ours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter
from pyspark.sql.types import StructField, StructType

from eos.errors import ConfigurationError
from sources.data_source import PulsarDataSource

_OF_SPARK: Final = {
    "owner", "provider", "location", "external", "is_managed_location", "comment", "collation",
}  # fmt: skip


def bound_source(
    name: str,
    reading: Mapping[str, str],
    writing: Mapping[str, str] | None,
    metadata: Sequence[str],
    *,
    no_jobs: str | None = None,
) -> type[PulsarDataSource]:
    """A data source that Spark knows as ``name``.

    Args:
        reading: its options for reading. ``writing``: those for writing; None: it is read only.
        metadata: the columns beside the value's, of those that begin with ``__``.
        no_jobs: why only streams, and no batch job, may write to it.
    """

    class BoundSource(PulsarDataSource):
        @classmethod
        def name(cls) -> str:
            return name

        def __init__(self, options: dict[str, str]) -> None:
            self._given = {k: v for k, v in options.items() if k.lower() not in _OF_SPARK}
            super().__init__(_merged(reading, self._given))

        def schema(self) -> StructType:
            self.options = {**self.options, "metadata": "true"}
            found = super().schema()
            unknown = set(metadata) - set(found.names)
            if unknown:
                raise ConfigurationError(
                    f"metadata: there is no column {', '.join(sorted(unknown))}; there are "
                    f"{', '.join(name for name in found.names if name.startswith('__'))}."
                )
            return StructType([one for one in found.fields if _is_wanted(one, metadata)])

        def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
            if no_jobs is not None:
                raise ConfigurationError(no_jobs)
            self.options = self._for_writing()
            return super().writer(schema, overwrite)

        def streamWriter(  # noqa: N802
            self, schema: StructType, overwrite: bool
        ) -> DataSourceStreamWriter:
            self.options = self._for_writing()
            return super().streamWriter(schema, overwrite)

        def _for_writing(self) -> dict[str, str]:
            if writing is None:
                raise ConfigurationError(
                    "This table can only be read: its catalog has no commit log.",
                    hint="Give one: PulsarCatalog(spark, ..., commit_log='/data/eos').",
                )
            return _merged(writing, self._given)

    return BoundSource


def _merged(bound: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """What a statement gives goes before what is bound; Spark writes its names in lower case."""
    said = {name.lower() for name in given}
    return {name: value for name, value in bound.items() if name.lower() not in said} | {**given}


def _is_wanted(field: StructField, metadata: Sequence[str]) -> bool:
    return not field.name.startswith("__") or field.name in metadata
