"""``IcebergSink``: exactly-once appends of DataFrames to an Iceberg table, by any catalog."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Unpack

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import DataFrame

from eos.iceberg.part import KIND, IcebergPart
from eos.iceberg.table_address import require_pyiceberg
from eos.protocol import History, Part
from eos.sinks._stage_task import REPORT_SCHEMA, StageTask
from eos.sinks._table_columns import arrow_schema
from eos.sinks.options import IcebergSinkArguments, IcebergSinkOptions
from eos.sinks.output import Begun, ChangedColumns, Output, Write, collect_staged
from eos.sinks.sink import Sink

if TYPE_CHECKING:
    from eos.iceberg.participant import IcebergParticipant

_FORMAT = "Iceberg"


class IcebergSink(Sink):
    """Writes DataFrames to an Iceberg table exactly once: each epoch is one snapshot, or none.

    An instance is the function for ``foreachBatch``; ``write`` is for batch jobs::

        sink = IcebergSink(
            sink_id="orders",
            table="sales.orders",
            catalog={"type": "rest", "uri": "https://catalog.example.com"},
            commit_log="/data/eos",
        )
        query = orders.writeStream.foreachBatch(sink).start()
        sink.write(df, epoch="2026-11-20")

    Tasks write Parquet files that no reader sees yet; the driver commits them with ``pyiceberg``.
    If the driver dies in between, no rows are lost, and ``eos recovery`` finishes without Spark.
    Columns are matched by name with the table's, at every level; ``merge_schema`` adds missing
    ones. Only lossless casts are made. Columns that the sink creates are optional at every level.

    The options are those of ``IcebergSinkOptions``.

    Raises:
        ConfigurationError: an option is missing, unknown or wrong, or ``pyiceberg`` is not
            installed.
    """

    options: IcebergSinkOptions

    def __init__(self, **options: Unpack[IcebergSinkArguments]) -> None:
        require_pyiceberg()
        super().__init__(IcebergSinkOptions.parse(options))

    def outputs(self) -> list[Output]:
        """Return the table."""
        return [IcebergOutput(self.options)]

    def __repr__(self) -> str:
        table = self.options.address.identity
        return f"IcebergSink(sink_id={self.options.sink_id!r}, table={table!r})"


class IcebergOutput(Output):
    """A table as an output of a sink: plans how Spark's tasks stage files in it."""

    participant: IcebergParticipant

    def __init__(self, options: IcebergSinkOptions) -> None:
        # Not at the top: ``eos`` has this class also where pyiceberg is not installed.
        from eos.iceberg.participant import IcebergParticipant

        self._options = options
        self._checked_columns: pa.Schema | None = None
        self._schema: pa.Schema | None = None
        self.participant = IcebergParticipant(options.sink_id, options.address)

    def is_written_by(self, part: Part) -> bool:
        """Whether ``part`` was written to the same table."""
        return isinstance(part, IcebergPart) and part.identity == self._options.address.identity

    def on_open(self, history: History, df: DataFrame) -> None:
        """Create the table, if the log has never written to it."""
        # A table that the log has written to may only be unreachable.
        table = self.participant.table
        is_new = history.last_begun((KIND, table.address.identity)) is None
        may_create = is_new or self._options.on_new_cluster == "continue"
        if may_create and table.find() is None:
            table.create(arrow_schema(df, _FORMAT), self._options.partition_by)

    def check(self, df: DataFrame) -> None:
        """See ``Output``."""
        options, columns = self._options, arrow_schema(df, _FORMAT)
        table = self.participant.table.load()
        is_checked = columns == self._checked_columns
        changed = None if is_checked else ChangedColumns(*table.compared(columns))
        self._schema = table.check_schema(columns, merge=options.merge_schema)
        if changed is not None:
            changed.report(f"table {options.address.identity}", options)
            self._checked_columns = columns

    def plan(self, df: DataFrame, context: SparkContext, begun: Begun) -> Write:
        """See ``Output``."""
        from eos.iceberg.data_file_entry import DataFileEntry
        from eos.iceberg.data_files import stage

        part, schema = begun(), self._schema
        assert isinstance(part, IcebergPart)
        assert schema is not None
        options, attempt_id = self._options, str(part.attempt_id)
        # Spark looks columns up by name, and does not find one with a dot in it.
        numbered = df.toDF(*(f"c{n}" for n in range(len(df.columns))))
        loaded = self.participant.table.load()
        lacking = loaded.lacking(schema)

        def planned() -> DataFrame:
            target = loaded.target(options.file_bytes, options.compression)
            task = StageTask(target, attempt_id, tuple(df.columns), stage=stage)
            return numbered.mapInArrow(task, REPORT_SCHEMA)

        early = None if len(lacking) else planned()  # while OPEN is appended

        def write() -> Sequence[Any]:
            # Not before OPEN is in the log: a fenced driver must not change the table.
            if early is None:
                loaded.add_columns(lacking)
            staged = collect_staged(planned() if early is None else early, context)
            return [DataFileEntry.from_json(text, attempt_id) for text in staged]

        return write
