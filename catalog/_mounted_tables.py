"""The tables of a mounted catalog: a data source for each topic that a statement has named."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeAlias

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from eos.catalog._bound_source import bound_source, source_of
from eos.ids import TopicName

# For reading, and for writing; None: read only.
Options: TypeAlias = tuple[dict[str, str], dict[str, str] | None]


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

    def table(self, topic: TopicName) -> tuple[str, StructType]:
        """Return the name of the topic's data source, and its current columns.

        Raises:
            TopicNotFound: the topic does not exist.
            EosError: the broker refuses, or does not answer.
        """
        kind = self._kind(topic)
        name = f"{self._prefix}_{source_of(topic)}"
        source = bound_source(name, *self._options(topic, kind), self._metadata)
        columns = source({}).schema()
        with self._lock:
            # Spark warns when one is replaced; its options depend only on the schema's type.
            if self._registered.get(name) != kind:
                self._spark.dataSource.register(source)
                self._registered[name] = kind
        return name, columns
