"""A data source for one topic, with its options bound in: Spark keeps none for a table.

``CREATE TABLE ... USING pulsar OPTIONS (...)`` loses them (measured, PySpark 4.2). What Spark does
hand over for a table are properties of its own, which are no options of ours.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter
from pyspark.sql.types import StructType

from eos.errors import ConfigurationError
from eos.sources.data_source import PulsarDataSource
from eos.spelling import plain

_OF_SPARK: Final = {
    "owner", "provider", "location", "external", "is_managed_location", "comment", "collation",
}  # fmt: skip


_OF_TABLE: Final = {
    "topic": "", "topics": "", "topicspattern": "",
    "schema": "bytes", "schemadefinition": "", "metadata": "false",
}  # fmt: skip
"""What makes a table what it is, with its default. A statement that gave another value would read
another topic, or bytes, by the columns of this one; of ``metadata`` nothing would be seen."""


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
        metadata: the columns beside the value's, of the message's own.
        no_jobs: why only streams, and no batch job, may write to it.
    """

    class BoundSource(PulsarDataSource):
        @classmethod
        def name(cls) -> str:
            return name

        def __init__(self, options: dict[str, str]) -> None:
            self._given = {k: v for k, v in options.items() if k.lower() not in _OF_SPARK}
            _check_are_of_a_statement(self._given, reading)
            super().__init__(_merged(reading, self._given))

        def schema(self) -> StructType:
            _check_are_columns(metadata)
            found = super().schema()
            hidden = set(self.OF_MALFORMED) - set(metadata)
            return StructType([field for field in found.fields if field.name not in hidden])

        def metadata(self, *, wanted: bool) -> Collection[str]:  # noqa: ARG002
            return [name for name in metadata if name in self.OWN_COLUMNS]

        def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
            if no_jobs is not None:
                raise ConfigurationError(no_jobs)
            # Of a table without columns of the message, all are the value's.
            self.options = {"metadata": str(bool(metadata))} | self._for_writing()
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


def _check_are_of_a_statement(given: Mapping[str, str], bound: Mapping[str, str]) -> None:
    """Spark has the table's columns from before the statement, whatever its options say."""
    known = _OF_TABLE | {plain(name): value for name, value in bound.items()}
    for name, value in given.items():
        option = plain(name)
        if option not in _OF_TABLE or known[option].lower() == value.lower():
            continue
        if option.startswith("topic"):
            hint = "Name the table of that topic."
        else:
            example = "metadata=['__key']" if option == "metadata" else f"{name}={value[:40]!r}"
            hint = f"Register it once more: PulsarCatalog.register(topic, table='...', {example})."
        raise ConfigurationError(
            f"Option {name} is the table's, and no statement can change it.",
            hint=f"{hint} Or use spark.read.format('pulsar').",
        )


def _check_are_columns(names: Sequence[str]) -> None:
    known = PulsarDataSource.OWN_COLUMNS
    if unknown := set(names) - {*known, *PulsarDataSource.OF_MALFORMED}:
        raise ConfigurationError(
            f"metadata: there is no column {', '.join(sorted(unknown))}; there are "
            f"{', '.join(known)}."
        )


def _merged(bound: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """What a statement gives goes before what is bound; Spark writes its names in lower case."""
    said = {name.lower() for name in given}
    return {name: value for name, value in bound.items() if name.lower() not in said} | {**given}
