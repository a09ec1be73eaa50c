"""``DeltaSink``: exactly-once appends of DataFrames to a Delta table, without Spark's Delta."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Unpack

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import DataFrame

from eos.delta.files import StagedFile
from eos.delta.opening import schema_text
from eos.delta.part import KIND, DeltaPart
from eos.delta.participant import DeltaParticipant, Staged
from eos.delta.staging import StagingTarget
from eos.errors import reported_error
from eos.protocol import History, Part
from eos.sinks._changed_columns import ChangedColumns
from eos.sinks._delta_columns import arrow_schema
from eos.sinks._delta_task import REPORT_SCHEMA, StageTask
from eos.sinks._jobs import tagged_jobs
from eos.sinks.options import DeltaSinkArguments, DeltaSinkOptions
from eos.sinks.output import Begun, Output, Write
from eos.sinks.sink import Sink


class DeltaSink(Sink):
    """One output of Spark, in a Delta table: each epoch is one version of it, or none.

    An instance is the function that ``foreachBatch`` takes; ``write`` serves batch jobs::

        sink = DeltaSink(sink_id="orders", table="/data/orders", commit_log="/data/eos")
        query = orders.writeStream.foreachBatch(sink).start()
        sink.write(df, epoch="2026-11-20")

    Tasks write Parquet files that no reader sees; the driver commits them with ``deltalake``. So a
    driver that dies in between loses nothing, and ``eos recovery`` finishes without Spark. Columns
    are compared by name with the table's, at every level; ``merge_schema`` adds those that it
    lacks. A table that the sink makes, and what it adds to one, can be null everywhere, as by
    Spark's Delta writer; comments and other metadata of columns are kept, but for rules (defaults,
    ``delta.*``). What a table declares NOT NULL, CHAR or VARCHAR is kept; types and new
    names that Spark's Delta writer refuses are refused. So are some that it takes: VARIANT,
    user-defined types, a void field of a struct, a zero character in a name, and in a new table a
    TIMESTAMP_NTZ inside of a map, which ``deltalake`` can't make (Spark can: ``CREATE TABLE``).

    The options are those of ``DeltaSinkOptions``.

    Raises:
        ConfigurationError: an option is missing, unknown or wrong.
    """

    options: DeltaSinkOptions

    def __init__(self, **options: Unpack[DeltaSinkArguments]) -> None:
        super().__init__(DeltaSinkOptions.parse(options))

    def outputs(self) -> list[Output]:
        """The table."""
        return [DeltaOutput(self.options)]

    def __repr__(self) -> str:
        return f"DeltaSink(sink_id={self.options.sink_id!r}, table={self.options.table!r})"


class DeltaOutput(Output):
    """A table, and how Spark's tasks stage files in it."""

    participant: DeltaParticipant

    def __init__(self, options: DeltaSinkOptions) -> None:
        self._options = options
        self._seen: pa.Schema | None = None
        self._schema: pa.Schema | None = None
        self.participant = DeltaParticipant(options.sink_id, options.table, options.storage_options)

    def traces(self) -> list[str]:
        """Rows of this sink that another log has committed to the table."""
        return self.participant.traces()

    def is_written_by(self, part: Part) -> bool:
        """Whether it is of the same table."""
        return isinstance(part, DeltaPart) and part.table == self.participant.table.folder.uri

    def on_open(self, history: History, df: DataFrame) -> None:
        """Make the table, unless the log has written to it: then it may only be away."""
        table = self.participant.table
        is_new = history.last_begun((KIND, table.folder.uri)) is None
        may_make = is_new or self._options.on_new_cluster == "continue"
        if may_make and not table.exists():
            table.create(arrow_schema(df), self._options.partition_by)

    def check(self, df: DataFrame) -> None:
        """See ``Output``; what was found holds for the attempt, and is looked at again by PREPARED
        and by the commit."""
        table, options, have = self.participant.table, self._options, arrow_schema(df)
        changed = None if have == self._seen else ChangedColumns(*table.compared(have))
        self._schema = table.check_schema(have, merge=options.merge_schema)
        if changed is not None:
            may_change = options.on_changed_columns == "continue"
            changed.tell(f"table {table.folder.uri}", options.sink_id, may_change=may_change)
            self._seen = have

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
        # Spark would look columns up by their names, and not find one with a dot in it.
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
            return [Staged(tuple(files), schema_text(schema), options.merge_schema)]

        return write
