"""The tables of a mounted catalog: a data source for each topic that a statement has named."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from eos.catalog._bound_source import bound_source, source_of
from eos.catalog._mount import parsed_plan
from eos.errors import ConfigurationError
from eos.ids import TopicName

# For reading, and for writing; None: read only.
Options: TypeAlias = tuple[dict[str, str], dict[str, str] | None]

_READ_TOO: Final = (
    "The statement reads the topic that it writes to by the same name, and Spark uses the options "
    "of one of them for both: the epoch would be lost. Mount the catalog under a second name, and "
    "read by that."
)

# A table in Spark's text of a parsed plan: its name, its options, and whether it is a stream.
_RELATION = re.compile(
    r"UnresolvedRelation \[(?P<name>[^\n]*?)\], \[(?P<options>[^\n]*?)\], (?:true|false)"
)

# Spark's addition to the options of a table that is written to.
_PRIVILEGES = re.compile(r"__required_write_privileges__=[A-Z,]*(, )?")

# The parsed plans of statements that keep a query's text: views, and tables that are cached.
_VIEW = re.compile(r"'?(CreateView|AlterViewAs|CacheTableAsSelect)")

_SEPARATELY: Final = (
    "unite DataFrames: spark.read.option(...).table(...).union(...); or use views made by CREATE "
    "TEMPORARY VIEW ... USING pulsar OPTIONS (...)."
)


class MountedTables:
    """Registers data sources on demand, from any thread.

    Args:
        prefix: of their names, which differ from those of registered tables.
        kind: returns the current type of a topic's schema; raises if there is no topic.
        options: returns the options of a topic with a schema of that type.
    """

    def __init__(
        self,
        spark: SparkSession,
        prefix: str,
        metadata: tuple[str, ...],
        kind: Callable[[TopicName], str],
        options: Callable[[TopicName, str], Options],
    ) -> None:
        self._spark = spark
        self._prefix = prefix
        self._metadata = metadata
        self._kind = kind
        self._options = options
        self._lock = threading.Lock()
        self._registered: dict[str, str] = {}

    def table(self, topic: TopicName, is_target: bool, statement: str) -> tuple[str, StructType]:
        """Return the name of the topic's data source, and its current columns.

        Args:
            is_target: whether a batch job writes to it.
            statement: the SQL that names it; "" if unknown.

        Raises:
            TopicNotFound: the topic does not exist.
            ConfigurationError: the statement names it with different options.
            EosError: the broker refuses, or does not answer.
        """
        kind = self._kind(topic)
        _check_options(self._spark, statement, [self._prefix, topic.namespace_name, topic.local])
        # Two sources: the one that is read refuses jobs that write, see `_READ_TOO`.
        name = f"{self._prefix}_{source_of(topic)}" + ("" if is_target else "_read")
        reading, writing = self._options(topic, kind)
        no_jobs = None if is_target or writing is None else _READ_TOO
        source = bound_source(name, reading, writing, self._metadata, no_jobs=no_jobs)
        columns = source({}).schema()
        with self._lock:
            # Spark warns when one is replaced; its options depend only on the schema's type.
            if self._registered.get(name) != kind:
                self._spark.dataSource.register(source)
                self._registered[name] = kind
        return name, columns


def _check_options(spark: SparkSession, statement: str, name: Sequence[str]) -> None:
    # Refuses a statement that names one table with different options. Spark resolves a name once in
    # a statement, also through views, and uses the options of its first occurrence for all
    # (measured, PySpark 4.2): t WITH (epoch='1') and t WITH (epoch='2') are both epoch 1. A table
    # does not get the options of the others, so the statement is parsed again here. It may omit the
    # first parts of the name (USE). A view's text is all that is known where it is read, so views
    # with options are refused when they are made.
    if not re.search(r"(?i)\bWITH\b", statement):
        return
    plan = parsed_plan(spark, statement)
    spelt = {", ".join(name[begin:]) for begin in range(len(name))}
    given = {
        _PRIVILEGES.sub("", found["options"]).rstrip(", ")
        for found in _RELATION.finditer(plan)
        if found["name"] in spelt
    }
    if len(given) > 1:
        raise ConfigurationError(
            f"The statement names {name[-1]} with different options, and Spark would use those of "
            "the first place for all of them.",
            hint=f"Mount the catalog under a second name, and use each name once; or {_SEPARATELY}",
        )
    if any(given) and _VIEW.match(plan):
        raise ConfigurationError(
            f"A view of {name[-1]} WITH options is not supported: in a statement that also names "
            "the table, or another view of it, Spark would use the options of one for all.",
            hint=f"Set them where the table is read; or {_SEPARATELY}",
        )
