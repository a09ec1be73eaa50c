"""The data source ``pulsar`` of PySpark's Python Data Source API."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from eos.client.kept import kept_client
from eos.ids import EntryPlace, TopicName
from sources._columns import checked_names, needed_columns, schema_of_source, to_spark
from sources._offsets import EARLIEST, Offset, Span
from sources._options import SourceOptions
from sources._planning import LATEST, Planner

if TYPE_CHECKING:
    import pyarrow as pa


class PulsarDataSource(DataSource):
    """``spark.read.format("pulsar")`` and ``spark.readStream.format("pulsar")``.

    ::

        spark.readStream.format("pulsar").options(
            serviceUrl="pulsar://localhost:6650", topic="orders", metadata=True
        ).load()

    Options: ``SourceOptions``. Columns: ``value``, and with ``metadata`` those that begin with
    ``__``; or those of them that ``.schema("value binary, __key binary")`` names, which is cheaper.
    """

    @classmethod
    def name(cls) -> str:
        """What ``format`` takes."""
        return "pulsar"

    def schema(self) -> StructType:
        """The columns; see the class."""
        return schema_of_source(metadata=SourceOptions.parse(self.options).metadata)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Batch reads."""
        return PulsarBatchReader(SourceOptions.parse(self.options), checked_names(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Streams."""
        return PulsarStreamReader(SourceOptions.parse(self.options), checked_names(schema))


class EntryRange(InputPartition):
    """What one task reads: a span of one exact partition."""

    def __init__(self, topic: str, span: Span) -> None:
        super().__init__((topic, span))
        self.topic = topic
        self.span = span


def _ranges(offset: Offset) -> list[EntryRange]:
    return [EntryRange(name, span) for name, span in offset.spans.items() if not span.is_empty]


def _read(
    options: SourceOptions, names: tuple[str, ...], one: EntryRange
) -> Iterator[pa.RecordBatch]:
    """The rows of a span.

    Raises:
        DataLost: its end was deleted.
        EosError: it can't be read.
    """
    if one.span.is_empty:
        return
    topic = TopicName.parse(one.topic)
    with (
        kept_client(options.client) as client,
        client.reader(one.topic, start=one.span.first, columns=needed_columns(names)) as reader,
    ):
        for batch in reader.read_to(one.span.last):
            yield to_spark(batch, topic, names)


class PulsarBatchReader(DataSourceReader):
    """Reads from one place to another, in each partition."""

    def __init__(self, options: SourceOptions, names: tuple[str, ...]) -> None:
        self._options = options
        self._names = names

    def partitions(self) -> Sequence[InputPartition]:
        """A task for each partition that has anything between the two places."""
        planner = Planner(self._options)
        try:
            starts = planner.places(self._options.starting_offsets or EARLIEST, "starting_offsets")
            ends = planner.places(self._options.ending_offsets, "ending_offsets")
            now = planner.ends(starts)
        finally:
            planner.close()
        # What is not there yet can't be read: it may never come.
        reachable = {name: _earlier(ends.get(name), end) for name, end in now.items()}
        ranges = _ranges(Offset.starting(starts).followed_by(reachable))
        return ranges or [EntryRange("", Span(None, None))]  # Spark wants one

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one partition, on an executor."""
        assert isinstance(partition, EntryRange)
        return _read(self._options, self._names, partition)


def _earlier(one: EntryPlace | None, other: EntryPlace | None) -> EntryPlace | None:
    return None if one is None or other is None else min(one, other)


class PulsarStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Cuts the topics into epochs. One object for a query, on the driver, for all its life."""

    def __init__(self, options: SourceOptions, names: tuple[str, ...]) -> None:
        self._options = options
        self._names = names
        self._planner: Planner | None = None
        self._target: dict[str, EntryPlace | None] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Tasks get it without the driver's connections."""
        return self.__dict__ | {"_planner": None, "_target": None}

    @property
    def planner(self) -> Planner:
        """The connections to plan with."""
        if self._planner is None:
            self._planner = Planner(self._options)
        return self._planner

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Where a new query begins. Spark asks more than once; see ``Offset``."""
        text = self._options.starting_offsets or LATEST
        return Offset.starting(self.planner.places(text, "starting_offsets")).to_json()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802, ARG002
        """The offset of the epoch behind ``start``; the same when nothing new is readable."""
        ends = self._target
        if ends is None:
            ends = self.planner.ends(self.planner.partitions())
        return Offset.from_json(start).followed_by(ends).to_json()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """What is there now is all that the query will read."""
        self._target = self.planner.ends(self.planner.partitions())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """A task for each partition with entries in the epoch that ends at ``end``.

        ``start`` is not used: ``end`` knows its own, also when the first epoch runs again.
        """
        return [] if start == end else _ranges(Offset.from_json(end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one partition, on an executor."""
        assert isinstance(partition, EntryRange)
        return _read(self._options, self._names, partition)

    def stop(self) -> None:
        """Close the connections."""
        if self._planner is not None:
            self._planner.close()
            self._planner = None
