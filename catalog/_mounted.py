"""The tables of a mounted catalog: a data source of each topic that a statement has named."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, TypeAlias

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from eos.catalog._bound import bound_source
from eos.catalog._names import source_of
from eos.catalog._statement import check_options
from eos.ids import TopicName

Options: TypeAlias = tuple[dict[str, str], dict[str, str] | None]
"""For reading, and for writing; None: it is read only."""

# Spark resolves a name once in a statement, and with it its options (measured, PySpark 4.2): those
# of the SELECT went to the INSERT, whose epoch was gone.
_READ_TOO: Final = (
    "The statement reads the topic that it writes to, by the same name, and Spark keeps the "
    "options of one of them only: the epoch would be lost. Mount the catalog under a second "
    "name, and read it by that."
)


class MountedTables:
    """Registers data sources as they are asked for, from any thread.

    Args:
        prefix: of their names: a topic that is registered too has another one there.
        kind: of a topic's schema, now; raises where there is no topic.
        options: of a topic with a schema of that kind.
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
        """The name of its data source, and its columns as the registry has them now.

        Args:
            is_target: a batch job writes to it.
            statement: the SQL that names it; "" where none is known.

        Raises:
            TopicNotFound: there is no such topic.
            ConfigurationError: the statement names it with different options.
            EosError: the broker refuses, or does not answer.
        """
        kind = self._kind(topic)
        check_options(self._spark, statement, [self._prefix, topic.namespace_name, topic.local])
        name = f"{self._prefix}_{source_of(topic)}" + ("" if is_target else "_read")
        reading, writing = self._options(topic, kind)
        no_jobs = None if is_target or writing is None else _READ_TOO
        source = bound_source(name, reading, writing, self._metadata, no_jobs=no_jobs)
        columns = source({}).schema()
        with self._lock:
            # Spark warns each time that one is replaced, and its options are only the kind's.
            if self._registered.get(name) != kind:
                self._spark.dataSource.register(source)
                self._registered[name] = kind
        return name, columns
