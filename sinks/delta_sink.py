"""``DeltaSink``: exactly-once appends of DataFrames to a Delta table, without Spark's Delta."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Unpack

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import DataFrame

from eos.delta.files import StagedFile
from eos.delta.opening import schema_to_json
from eos.delta.part import KIND, DeltaPart
from eos.delta.participant import DeltaParticipant, Staged
from eos.delta.staging import StagingTarget
from eos.errors import reported_error
from eos.protocol import History, Part
from eos.sinks._delta_task import REPORT_SCHEMA, StageTask
from eos.sinks._spark_jvm import tagged_jobs
from eos.sinks._table_columns import arrow_schema
from eos.sinks.options import DeltaSinkArguments, DeltaSinkOptions
from eos.sinks.output import Begun, ChangedColumns, Output, Write
from eos.sinks.sink import Sink


class DeltaSink(Sink):
    """Writes DataFrames to a Delta table exactly once: each epoch is one version of it, or none.

    An instance is the function for ``foreachBatch``; ``write`` is for batch jobs::

        sink = DeltaSink(sink_id="orders", table="/data/orders", commit_log="/data/eos")
        query = orders.writeStream.foreachBatch(sink).start()
        sink.write(df, epoch="2026-11-20")

    Tasks write Parquet files that no reader sees yet; the driver commits them with ``deltalake``.
    If the driver dies in between, no rows are lost, and ``eos recovery`` finishes without Spark.
    Columns are matched by name with the table's, at every level; ``merge_schema`` adds missing
    ones. Tables and columns that the sink creates are nullable at every level, as with Spark's
    Delta writer. Comments and other metadata of columns are kept, except rules (defaults,
    ``delta.*``). A table's NOT NULL, CHAR and VARCHAR are enforced. Types and new names that
    Spark's Delta writer refuses are refused, and some that it accepts: VARIANT, user-defined types,
    a void field of a struct, a zero character in a name, and in a new table a TIMESTAMP_NTZ in a
    map, which ``deltalake`` can't create (Spark can: ``CREATE TABLE``).

    The options are those of ``DeltaSinkOptions``.

    Raises:
        ConfigurationError: an option is missing, unknown or wrong.
    """

    options: DeltaSinkOptions

    def __init__(self, **options: Unpack[DeltaSinkArguments]) -> None:
        super().__init__(DeltaSinkOptions.parse(options))

    def outputs(self) -> list[Output]:
        """Return the table."""
        return [DeltaOutput(self.options)]

    def __repr__(self) -> str:
        return f"DeltaSink(sink_id={self.options.sink_id!r}, table={self.options.table!r})"


class DeltaOutput(Output):
    """A table as an output of a sink: plans how Spark's tasks stage files in it."""

    participant: DeltaParticipant

    def __init__(self, options: DeltaSinkOptions) -> None:
        self._options = options
        self._checked_columns: pa.Schema | None = None
        self._schema: pa.Schema | None = None
        self.participant = DeltaParticipant(options.sink_id, options.table, options.storage_options)

    def traces(self) -> list[str]:
        """Return versions of the table that another log of this sink has committed."""
        return self.participant.traces()

    def is_written_by(self, part: Part) -> bool:
        """Whether ``part`` was written to the same table."""
        return isinstance(part, DeltaPart) and part.table == self.participant.table.folder.uri

    def on_open(self, history: History, df: DataFrame) -> None:
        """Create the table, if the log has never written to it."""
        # A table that the log has written to may only be unreachable.
        table = self.participant.table
        is_new = history.last_begun((KIND, table.folder.uri)) is None
        may_create = is_new or self._options.on_new_cluster == "continue"
        if may_create and not table.exists():
            table.create(arrow_schema(df), self._options.partition_by)

    def check(self, df: DataFrame) -> None:
        """See ``Output``."""
        # The attempt uses the schema that is found here; PREPARED and the commit check it again.
        table, options, columns = self.participant.table, self._options, arrow_schema(df)
        is_checked = columns == self._checked_columns
        changed = None if is_checked else ChangedColumns(*table.compared(columns))
        self._schema = table.check_schema(columns, merge=options.merge_schema)
        if changed is not None:
            may_change = options.on_changed_columns == "continue"
            changed.report(f"table {table.folder.uri}", options.sink_id, may_change=may_change)
            self._checked_columns = columns

    def plan(self, df: DataFrame, context: SparkContext, begun: Begun) -> Write:
        """See ``Output``."""
        part = begun()
        assert isinstance(part, DeltaPart)
        table, options = self.participant.table, self._options
        schema = self._schema
        assert schema is not None
        task = StageTask(
            StagingTarget(
                uri=options.table,
                schema=schema,
                partition_columns=table.partition_columns,
                storage_options=dict(options.storage_options or {}),
                file_bytes=options.file_bytes,
                compression=options.compression,
            ),
            str(part.attempt_id),
            tuple(df.columns),
        )
        # Spark looks columns up by name, and does not find one with a dot in it.
        numbered = df.toDF(*(f"c{n}" for n in range(len(df.columns))))
        writing = numbered.mapInArrow(task, REPORT_SCHEMA)

        def write() -> Sequence[Staged]:
            with tagged_jobs(context):
                reports = writing.collect()
            for report in reports:
                if report.error is not None:
                    raise reported_error(*json.loads(report.error))
            files = [
                StagedFile.from_json(text)
                for report in reports
                for text in json.loads(report.files)
            ]
            return [Staged(tuple(files), schema_to_json(schema), options.merge_schema)]

        return write
