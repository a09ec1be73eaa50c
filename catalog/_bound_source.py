"""Data sources of single topics, and the names of topics in Spark."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql.types import StructType

from eos.errors import ConfigurationError
from eos.ids import TopicName
from eos.sources.data_source import PulsarDataSource
from eos.transport.auth import AUTH_OPTIONS
from eos.user_input import plain

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter

_OTHER: Final = re.compile(r"[^a-z0-9_]")
_DIGITS: Final = 8
_MAX_CHARS: Final = 60


def database_of(namespace: str) -> str:
    """Return ``public_default`` for ``public/default``."""
    return _plain(namespace)


def table_of(topic: TopicName) -> str:
    """Return ``orders_x`` for ``orders-x``. Two topics may have the same name."""
    return _plain(topic.local)


def source_of(topic: TopicName, *table: str) -> str:
    """Return the unique name of a data source: Spark has one of a name, with one table's options.

    Args:
        table: what tells the topic's tables apart; nothing: the id of its sink.
    """
    digest = hashlib.sha256("\n".join((str(topic), *table)).encode()).hexdigest()[:_DIGITS]
    return f"pulsar_{_plain(topic.local)[:_MAX_CHARS]}_{digest}"


def _plain(name: str) -> str:
    return _OTHER.sub("_", name.lower())


# Spark's own properties of a table, which it passes like options.
_OF_SPARK: Final = {
    "owner", "provider", "location", "external", "is_managed_location", "comment", "collation",
}  # fmt: skip


# Options that define a table, with their defaults. A statement with another value would read
# another topic, or bytes, with the columns of this table; `metadata` would have no effect.
_OF_TABLE: Final = {
    "topic": "", "topics": "", "topicspattern": "",
    "schema": "bytes", "schemadefinition": "", "metadata": "false",
}  # fmt: skip

# Options that decide where a catalog's secrets are sent, and where its epochs are logged. A user of
# SQL can't see the secrets, so a statement must not send them elsewhere, or without TLS's checks.
_AUTH: Final = {plain(name) for name in AUTH_OPTIONS}
_OF_CATALOG: Final = _AUTH | {"serviceurl", "adminurl", "listenername", "keylocation", "commitlog"}


def bound_source(
    name: str,
    reading: Mapping[str, str],
    writing: Mapping[str, str] | None,
    metadata: Sequence[str],
) -> type[PulsarDataSource]:
    """Make a data source with the format name ``name`` and the options of one topic.

    Args:
        reading: its options for reading. ``writing``: those for writing; None: read only.
        metadata: the message's own columns that it has.
    """
    # CREATE TABLE ... USING pulsar OPTIONS (...) loses the options (measured, PySpark 4.2): Spark
    # passes only its own properties of a table, which are not options of the source.

    class BoundSource(PulsarDataSource):
        @classmethod
        def name(cls) -> str:
            return name

        def __init__(self, options: dict[str, str]) -> None:
            self._given = {k: v for k, v in options.items() if k.lower() not in _OF_SPARK}
            _check_statement_options(self._given, {**(writing or {}), **reading})
            super().__init__(_merged(reading, self._given))

        def schema(self) -> StructType:
            _check_metadata(metadata)
            found = super().schema()
            hidden = set(self.OF_MALFORMED) - set(metadata)
            return StructType([field for field in found.fields if field.name not in hidden])

        def metadata(self, *, wanted: bool) -> Collection[str]:  # noqa: ARG002
            # The table's columns are fixed, so a statement's option has no effect.
            return [name for name in metadata if name in self.OWN_COLUMNS]

        def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
            # Without the message's own columns, all columns of the table are the value's.
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
                    "This table is read only: its catalog has no commit log.",
                    hint="Set one: PulsarCatalog(spark, ..., commit_log='/data/eos').",
                )
            return _merged(writing, self._given)

    return BoundSource


def _check_statement_options(given: Mapping[str, str], bound: Mapping[str, str]) -> None:
    # Spark has the table's columns already, so a statement can't change the options that define
    # them.
    known = _OF_TABLE | {plain(name): value for name, value in bound.items()}
    fixed = _OF_CATALOG & known.keys()
    if fixed & _AUTH:
        fixed |= _AUTH | {"listenername"}
    for name, value in given.items():
        option = plain(name)
        if option in fixed:
            hint = "Set it for all statements: PulsarCatalog(...)."
        elif option not in _OF_TABLE or known[option].lower() == value.lower():
            continue
        elif option.startswith("topic"):
            hint = "Use the table of that topic."
        else:
            example = "metadata=['__key']" if option == "metadata" else f"{name}={value[:40]!r}"
            hint = f"Register another table: PulsarCatalog.register(topic, table='...', {example})."
        raise ConfigurationError(
            f"Option {name} belongs to the table and can't be changed by a statement.",
            hint=f"{hint} Or use spark.read.format('pulsar').",
        )


def _check_metadata(names: Sequence[str]) -> None:
    known = PulsarDataSource.OWN_COLUMNS
    if unknown := set(names) - {*known, *PulsarDataSource.OF_MALFORMED}:
        raise ConfigurationError(
            f"metadata: unknown column {', '.join(sorted(unknown))}; choose from "
            f"{', '.join(known)}."
        )


def _merged(bound: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    # Options of a statement, whose names are in lower case, override the table's.
    overridden = {name.lower() for name in given}
    kept = {name: value for name, value in bound.items() if name.lower() not in overridden}
    return kept | {**given}
