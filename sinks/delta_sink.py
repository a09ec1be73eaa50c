"""``DeltaSink``: exactly-once appends of DataFrames to a Delta table, without Spark's Delta."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Unpack

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import DataFrame

from eos.delta.files import StagedFile
from eos.delta.opening import schema_to_json
from eos.delta.part import KIND, DeltaPart
from eos.delta.participant import DeltaParticipant, Staged
from eos.delta.staging import StagingTarget
from eos.delta.upserts import DELETE
from eos.delta.upserts import check_names as check_upsert
from eos.participant import Upsert
from eos.protocol import History, Part
from eos.sinks._stage_task import REPORT_SCHEMA, StageTask
from eos.sinks._table_columns import arrow_schema
from eos.sinks._upserts import IS_AMBIGUOUS, IS_DELETE, Upserts
from eos.sinks.options import DeltaSinkArguments, DeltaSinkOptions
from eos.sinks.output import Begun, ChangedColumns, Output, Write, collect_staged
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
        self._upserts = Upserts.of(options)
        self._checked_columns: pa.Schema | None = None
        self._schema: pa.Schema | None = None
        self._upsert: Upsert | None = None
        # The table's columns, and those of the rows that need not be there.
        self._there: frozenset[str] = frozenset()
        self._optional: frozenset[str] = frozenset()
        self.participant = DeltaParticipant(options.sink_id, options.table, options.storage_options)

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
            left_out = self._upserts.left_out(df)
            columns = [one for one in arrow_schema(df) if one.name not in left_out]
            table.create(pa.schema(columns), self._options.partition_by)

    def _is_written(self, name: str) -> bool:
        return name not in self._optional or name.lower() in self._there

    def check(self, df: DataFrame) -> None:
        """See ``Output``."""
        # The attempt uses the schema that is found here; PREPARED and the commit check it again.
        table, options = self.participant.table, self._options
        self._optional = self._upserts.optional(df)
        # An append asks for nothing more: each question opens the table.
        if self._optional:
            self._there = frozenset(name.lower() for name in table.schema.names)
        columns = pa.schema([one for one in arrow_schema(df) if self._is_written(one.name)])
        is_checked = columns == self._checked_columns
        changed = None if is_checked else ChangedColumns(*table.compared(columns))
        self._schema = table.check_schema(columns, merge=options.merge_schema)
        self._upsert = self._found_upsert(columns, self._schema)
        if changed is not None:
            changed.report(f"table {table.folder.uri}", options)
            self._checked_columns = columns

    def _found_upsert(self, columns: pa.Schema, schema: pa.Schema) -> Upsert | None:
        # With the table's spelling of names.
        options = self._options
        if not options.merge_on:
            return None
        self.participant.table.check_writable(upsert=True)
        there = {name.lower(): name for name in schema.names}
        on = tuple(there.get(name.lower(), name) for name in options.merge_on)
        upsert = Upsert(on, options.delete_when is not None)
        check_upsert(_subset(schema, columns.names), upsert)
        return upsert

    def plan(self, df: DataFrame, context: SparkContext, begun: Begun) -> Write:
        """See ``Output``."""
        part = begun()
        assert isinstance(part, DeltaPart)
        table, options = self.participant.table, self._options
        schema = self._schema
        assert schema is not None
        written = [name for name in df.columns if self._is_written(name)]
        upsert = self._upsert
        task = StageTask(
            StagingTarget(
                uri=options.table,
                schema=schema if upsert is None else _subset(schema, written),
                partition_columns=table.partition_columns,
                storage_options=dict(options.storage_options or {}),
                file_bytes=options.file_bytes,
                compression=options.compression,
                upsert=upsert,
            ),
            str(part.attempt_id),
            (*written, DELETE) if upsert is not None and upsert.deletes else tuple(written),
            self._upserts,
        )
        numbered = self._upserts.numbered(df, written)
        sent = [f"c{n}" for n, name in enumerate(df.columns) if name in written]
        flags = [name for name in numbered.columns if name in (IS_DELETE, IS_AMBIGUOUS)]
        writing = numbered.select(*sent, *flags).mapInArrow(task, REPORT_SCHEMA)

        def write() -> Sequence[Staged]:
            files = tuple(map(StagedFile.from_json, collect_staged(writing, context)))
            text = schema_to_json(schema)
            return [Staged(files, text, options.merge_schema, upsert)]

        return write


def _subset(schema: pa.Schema, columns: Iterable[str]) -> pa.Schema:
    wanted = {name.lower() for name in columns}
    return pa.schema([one for one in schema if one.name.lower() in wanted])
