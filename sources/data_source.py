"""The data source ``pulsar`` of PySpark's Python Data Source API."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from eos.errors import ConfigurationError
from eos.sources._columns import METADATA, RowFormat, row_format, schema_of_source
from eos.sources._epochs import EpochPlanner, values_of
from eos.sources._history_reading import HistoryRange, read_history
from eos.sources._offsets import Offset, Span
from eos.sources._options import SourceOptions
from eos.sources._reading import EntryRange, RangeGroup, read_range
from eos.sources._values import MALFORMED_REASON, MALFORMED_VALUE
from eos.spark_worker import disable_delayed_acks, freeze_imports

if TYPE_CHECKING:
    import pyarrow as pa


class PulsarDataSource(DataSource):
    """``spark.read.format("pulsar")`` and ``spark.readStream.format("pulsar")``.

    ::

        spark.readStream.format("pulsar").options(
            serviceUrl="pulsar://localhost:6650", topic="orders", metadata=True
        ).load()

    Options: ``SourceOptions``. Columns: what the values become, and with ``metadata`` the
    message's own, ``METADATA``; or those of them that ``.schema("value binary, __key binary")``
    names, which is cheaper.
    """

    OWN_COLUMNS: Final = tuple(METADATA)
    OF_MALFORMED: Final = (MALFORMED_VALUE, MALFORMED_REASON)

    @classmethod
    def name(cls) -> str:
        """What ``format`` takes."""
        return "pulsar"

    def schema(self) -> StructType:
        """The columns; see the class."""
        options = SourceOptions.parse(self.options)
        return schema_of_source(values_of(options), metadata=self.metadata(wanted=options.metadata))

    def metadata(self, *, wanted: bool) -> Collection[str]:
        """Which of ``OWN_COLUMNS`` are there; ``wanted``: what the option says."""
        return self.OWN_COLUMNS if wanted else ()

    def reader(self, schema: StructType) -> DataSourceReader:
        """Batch reads."""
        options = SourceOptions.parse(self.options)
        return PulsarBatchReader(options, self._form(options, schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Streams."""
        options = SourceOptions.parse(self.options)
        for name, is_set in (
            ("readCompacted", options.read_compacted),
            ("endingOffsets", options.ending_offsets is not None),
            ("endingTime", options.ending_time is not None),
        ):
            if is_set:
                raise ConfigurationError(
                    f"{name} is for batch reads: a stream has no end, and gets each message.",
                    hint="Leave it out, or read in batch.",
                )
        return PulsarStreamReader(options, self._form(options, schema))

    def _form(self, options: SourceOptions, schema: StructType) -> RowFormat:
        metadata = self.metadata(wanted=options.metadata)
        return row_format(values_of(options), schema, metadata=metadata)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Batch jobs that write; see ``eos.sinks.datasource_writer``."""
        from eos.sinks.datasource_writer import (
            PulsarBatchWriter,  # deltalake, which executors that read lack
        )

        return PulsarBatchWriter(self.options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """Streams that are written."""
        from eos.sinks.datasource_writer import PulsarStreamWriter

        return PulsarStreamWriter(self.options, schema, overwrite=overwrite)


class _Reader:
    """What goes to the tasks of either reader, and what they do."""

    def __init__(self, options: SourceOptions, form: RowFormat) -> None:
        self._options = options
        self._form = form

    def __setstate__(self, state: dict[str, Any]) -> None:
        """A task has it, and waits for its partition."""
        self.__dict__.update(state)
        disable_delayed_acks()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one range, on an executor."""
        return _rows_of(self._options, self._form, partition)


class PulsarBatchReader(_Reader, DataSourceReader):
    """Reads from one place to another, in each partition."""

    def partitions(self) -> Sequence[InputPartition]:
        """Tasks for each partition that has anything between the two places."""
        epochs = EpochPlanner(self._options, self._form)
        try:
            ranges = epochs.tasks(epochs.bounded())
        finally:
            epochs.close()
        return ranges or [EntryRange("", Span(None, None))]  # Spark wants one


class PulsarStreamReader(_Reader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Cuts the topics into epochs. One object for a query, on the driver, for all its life."""

    def __init__(self, options: SourceOptions, form: RowFormat) -> None:
        super().__init__(options, form)
        self._opened: EpochPlanner | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Tasks get it without the driver's connections."""
        return self.__dict__ | {"_opened": None}

    @property
    def _epochs(self) -> EpochPlanner:
        if self._opened is None:
            self._opened = EpochPlanner(self._options, self._form)
        return self._opened

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Where a new query begins. Spark asks more than once; see ``Offset``."""
        return self._epochs.initial().to_json()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802, ARG002
        """The offset of the epoch behind ``start``; the same when nothing new is readable."""
        return self._epochs.behind(Offset.from_json(start)).to_json()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """What is there now is all that the query will read."""
        self._epochs.set_target()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Tasks for each partition with entries in the epoch that ends at ``end``.

        ``start`` is not used: ``end`` knows its own, also when the first epoch runs again.
        """
        return [] if start == end else self._epochs.tasks(Offset.from_json(end))

    def commit(self, end: dict[str, Any]) -> None:
        """Spark's checkpoint has the epoch that ends at ``end``: its subscription may move."""
        self._epochs.commit(Offset.from_json(end))

    def stop(self) -> None:
        """Close the connections."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None


def _rows_of(
    options: SourceOptions, form: RowFormat, partition: InputPartition
) -> Iterator[pa.RecordBatch]:
    if isinstance(partition, HistoryRange):
        yield from read_history(options, form, partition)
    else:
        assert isinstance(partition, EntryRange | RangeGroup)
        ranges = [partition] if isinstance(partition, EntryRange) else partition.ranges
        for one in ranges:
            yield from read_range(options, form, one)
    freeze_imports()
