"""The data source ``pulsar`` of PySpark's Python Data Source API."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.types import StructType

from eos.errors import ConfigurationError
from eos.sinks.datasource_compat import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
    ReadLimit,
    SupportsTriggerAvailableNow,
    adapted,
)
from eos.sources._epoch_planner import EpochPlanner, values_of
from eos.sources._history_files import HistoryRange, read_history
from eos.sources._offsets import Offset
from eos.sources._range_reader import EntryRange, read_range
from eos.sources._row_format import ENCRYPTION, METADATA, RowFormat
from eos.sources._source_options import SourceOptions
from eos.sources._spark_columns import OWN_COLUMNS, row_format, schema_of_source
from eos.sources._value_format import MALFORMED_REASON, MALFORMED_VALUE
from eos.spark_worker import disable_delayed_acks, freeze_imports

if TYPE_CHECKING:
    import pyarrow as pa


class PulsarDataSource(DataSource):
    """``spark.read.format("pulsar")`` and ``spark.readStream.format("pulsar")``.

    ::

        spark.readStream.format("pulsar").options(
            serviceUrl="pulsar://localhost:6650", topic="orders", metadata=True
        ).load()

    Options: ``SourceOptions``. Columns: those of the values, and with ``metadata`` the message's
    own, ``METADATA``; or only those that ``.schema("value binary, __key binary")`` names, which is
    cheaper.
    """

    OWN_COLUMNS: Final = tuple(OWN_COLUMNS)
    OF_MALFORMED: Final = (MALFORMED_VALUE, MALFORMED_REASON)

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format``."""
        return "pulsar"

    def schema(self) -> StructType:
        """Return the columns; see the class."""
        options = SourceOptions.parse(self.options)
        return schema_of_source(values_of(options), metadata=self._own_columns(options))

    def metadata(self, *, wanted: bool) -> Collection[str]:
        """Return which of ``OWN_COLUMNS`` it has; ``wanted``: the option ``metadata``."""
        return METADATA if wanted else ()

    def _own_columns(self, options: SourceOptions) -> Collection[str]:
        names = self.metadata(wanted=options.metadata)
        secret = options.encryption
        if names and secret is not None and secret.crypto_failure_action == "consume":
            return [*names, *ENCRYPTION]
        return names

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch read."""
        options = SourceOptions.parse(self.options)
        return PulsarBatchReader(options, self._form(options, schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Return the reader of a stream."""
        options = SourceOptions.parse(self.options)
        for name, is_set in (
            ("readCompacted", options.read_compacted),
            ("endingOffsets", options.ending_offsets is not None),
            ("endingTime", options.ending_time is not None),
        ):
            if is_set:
                raise ConfigurationError(
                    f"{name} is for batch reads only: a stream has no end, and reads each message.",
                    hint="Leave it out, or use a batch read.",
                )
        return adapted(PulsarStreamReader(options, self._form(options, schema)))

    def _form(self, options: SourceOptions, schema: StructType) -> RowFormat:
        return row_format(values_of(options), schema, metadata=self._own_columns(options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of a batch job; see ``eos.sinks.datasource_writer``."""
        from eos.sinks.datasource_writer import (
            PulsarBatchWriter,  # deltalake, which executors that read lack
        )

        return PulsarBatchWriter(self.options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """Return the writer of a stream."""
        from eos.sinks.datasource_writer import PulsarStreamWriter

        return PulsarStreamWriter(self.options, schema, overwrite=overwrite)


class TaskInput(InputPartition):
    """A task's input: files of a history, or ranges of partitions, one after the other."""

    def __init__(self, work: HistoryRange | Sequence[EntryRange]) -> None:
        super().__init__(work)
        self.work = work


class _Reader:
    # The part of both readers that is sent to tasks.

    def __init__(self, options: SourceOptions, form: RowFormat) -> None:
        self._options = options
        self._form = form

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Prepares the worker of the task, which now waits for its partition.
        self.__dict__.update(state)
        disable_delayed_acks()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task, on an executor."""
        assert isinstance(partition, TaskInput)
        if isinstance(partition.work, HistoryRange):
            yield from read_history(self._options, self._form, partition.work)
        else:
            # All of them: with maxPartitions a task reads several partitions.
            for one in partition.work:
                yield from read_range(self._options, self._form, one)
        freeze_imports()


class PulsarBatchReader(_Reader, DataSourceReader):
    """Reads each partition from a starting place to an ending place."""

    def partitions(self) -> Sequence[InputPartition]:
        """Return the tasks for each partition that has entries between the places."""
        epochs = EpochPlanner(self._options, self._form)
        try:
            work = epochs.tasks(epochs.bounded())
        finally:
            epochs.close()
        return [TaskInput(one) for one in work or [()]]  # Spark wants one


class PulsarStreamReader(_Reader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a stream; one object on the driver for a whole run of the query."""

    def __init__(self, options: SourceOptions, form: RowFormat) -> None:
        super().__init__(options, form)
        self._opened: EpochPlanner | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the driver's connections, for tasks."""
        return self.__dict__ | {"_opened": None}

    @property
    def _epochs(self) -> EpochPlanner:
        if self._opened is None:
            self._opened = EpochPlanner(self._options, self._form)
        return self._opened

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return where a new query begins."""
        # Spark calls it more than once; see Offset.
        return self._epochs.initial().to_json()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802, ARG002
        """Return the offset of the epoch after ``start``; ``start`` if nothing new is readable."""
        return self._epochs.next_offset(Offset.from_json(start)).to_json()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Limit the query to the messages that exist now."""
        self._epochs.set_target()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the tasks for each partition with entries in the epoch that ends at ``end``."""
        # `start` is not used: `end` has the beginning, too, also when the first epoch runs again.
        work = [] if start == end else self._epochs.tasks(Offset.from_json(end))
        return [TaskInput(one) for one in work]

    def commit(self, end: dict[str, Any]) -> None:
        """Move the subscription after Spark's checkpoint has the epoch that ends at ``end``."""
        self._epochs.commit(Offset.from_json(end))

    def stop(self) -> None:
        """Close the connections."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None
