"""Spark's Data Source API as of 4.2, on Spark 4.0 and 4.1 too; Spark 3.5 has none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from eos.errors import ConfigurationError

try:
    from pyspark.sql.datasource import (
        DataSource,
        DataSourceArrowWriter,
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
        InputPartition,
    )
except ImportError:
    raise ConfigurationError(
        'format("pulsar") and the catalog need PySpark 4.0: 3.5 has no data sources in Python.',
        hint="With 3.5 write by PulsarSink or DeltaSink, in foreachBatch or by their write().",
    ) from None

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
    from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
else:
    try:
        from pyspark.sql.datasource import DataSourceStreamArrowWriter
    except ImportError:  # before 4.1

        class DataSourceStreamArrowWriter(DataSourceStreamWriter, DataSourceArrowWriter):
            """Spark passes Arrow batches to each ``DataSourceArrowWriter``."""

    try:
        from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
    except ImportError:  # before 4.2
        ReadLimit = None

        class SupportsTriggerAvailableNow:
            """Without it, a query with ``availableNow`` runs one epoch."""


__all__ = [
    "DataSource",
    "DataSourceReader",
    "DataSourceStreamArrowWriter",
    "DataSourceStreamReader",
    "DataSourceStreamWriter",
    "DataSourceWriter",
    "InputPartition",
    "OffsetJson",
    "ReadLimit",
    "StartlessStreamReader",
    "SupportsTriggerAvailableNow",
    "adapted",
]

OffsetJson = dict[str, Any]


def adapted(reader: DataSourceStreamReader) -> DataSourceStreamReader:
    """Return the reader, written for Spark 4.2, as this release of Spark calls it."""
    return StartlessStreamReader(reader) if ReadLimit is None else reader


class StartlessStreamReader(DataSourceStreamReader):
    """Calls a reader as Spark 4.2 does, and is called as 4.0 and 4.1 do."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader
        self._initial: OffsetJson | None = None
        # The last offset that Spark has: from its log, or returned by ``latestOffset``, as Spark
        # logs that offset, or the query ends.
        self._last: OffsetJson | None = None
        # Where the epoch of ``_last`` begins; None if an earlier run of the query planned it.
        self._begin: OffsetJson | None = None

    def __getstate__(self) -> OffsetJson:
        """Leave out the driver's state, for tasks."""
        return {"_reader": self._reader}

    def initialOffset(self) -> OffsetJson:  # noqa: N802
        """Return where a new query begins, the same place in each call."""
        if self._initial is None:
            self._initial = self._reader.initialOffset()
        return self._initial

    def latestOffset(self) -> OffsetJson:  # type: ignore[override]  # noqa: N802
        """Return the offset of the epoch after the last one."""
        begin = self.initialOffset() if self._last is None else self._last
        last: OffsetJson = self._reader.latestOffset(begin, None)
        if last != begin:
            self._begin = begin
        self._last = last
        return last

    def partitions(self, start: OffsetJson, end: OffsetJson) -> Sequence[InputPartition]:
        """Return the tasks of an epoch; none for the empty one of a restarted query.

        Raises:
            ConfigurationError: the epoch does not follow the last one: messages would be read
                twice, or not at all.
        """
        # Before 4.2 Spark does not tell where an epoch begins. But when it restarts a query, with
        # any trigger, it first plans the empty epoch from its last offset to its last offset, for
        # readers that prefetch, whether that epoch runs again or not (measured, 4.0.5 and 4.1.4).
        if self._last is None:
            self._last = end
        if start == end == self._last:
            return []
        # An epoch that does not follow would read messages twice, or not at all.
        if end != self._last or self._begin not in (None, start):
            raise ConfigurationError(
                "Spark planned an epoch that does not follow the query's last one.",
                hint="Nothing was read. Restart the query without "
                "spark.sql.streaming.triggerAvailableNowWrapper.enabled; if the error comes again, "
                "use PySpark 4.2 or newer, which tells a source where each epoch begins.",
            )
        tasks: Sequence[InputPartition] = self._reader.partitions(start, end)
        return tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one range, on an executor."""
        rows: Iterator[pa.RecordBatch] = self._reader.read(partition)
        return rows

    def commit(self, end: OffsetJson) -> None:
        """Move the subscription after Spark's checkpoint has the epoch."""
        self._reader.commit(end)

    def stop(self) -> None:
        """Close the connections."""
        self._reader.stop()
