"""``DeltaSink``: exactly-once appends of DataFrames to a Delta table, without Spark's Delta."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Unpack

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from eos.delta.files import StagedFile
from eos.delta.opening import schema_text
from eos.delta.part import KIND, DeltaPart
from eos.delta.participant import DeltaParticipant, Staged
from eos.delta.staging import StagingTarget
from eos.errors import InputError, crossed
from eos.protocol import History, Part
from sinks._delta_task import REPORT_SCHEMA, StageTask
from sinks._jobs import tagged_jobs
from sinks.options import DeltaSinkArguments, DeltaSinkOptions
from sinks.output import Begun, Output, Write
from sinks.sink import Sink


class DeltaSink(Sink):
    """One output of Spark, in a Delta table: each epoch is one version of it, or none.

    An instance is the function that ``foreachBatch`` takes; ``write`` serves batch jobs::

        sink = DeltaSink(sink_id="orders", table="/data/orders", commit_log="/data/eos")
        query = orders.writeStream.foreachBatch(sink).start()
        sink.write(df, epoch="2026-11-20")

    Tasks write Parquet files that no reader sees; the driver commits them with ``deltalake``. So a
    driver that dies in between loses nothing, and ``eos-recovery`` finishes without Spark. Columns
    are compared by name with the table's; ``merge_schema`` adds those that it lacks.

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
            # As Spark does it: what is never null in one DataFrame may be in the next one.
            columns = [field.with_nullable(True) for field in arrow_schema(df)]
            table.create(pa.schema(columns), self._options.partition_by)

    def plan(
        self,
        df: DataFrame,
        context: SparkContext,
        begun: Begun,
        may_rerun: Callable[[], bool],  # noqa: ARG002
    ) -> Write:
        """See ``Output``."""
        part = begun()  # first: both look at the table
        assert isinstance(part, DeltaPart)
        table, options = self.participant.table, self._options
        schema = table.check_schema(arrow_schema(df), merge=options.merge_schema)
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
                    raise crossed(*json.loads(report.error))
            files = [
                StagedFile.from_json(text)
                for report in reports
                for text in json.loads(report.files)
            ]
            return [Staged(tuple(files), schema_text(schema), options.merge_schema)]

        return write


def arrow_schema(df: DataFrame) -> pa.Schema:
    """The columns of ``df`` as its Arrow batches have them.

    Raises:
        InputError: there are none, or two of one name, or one has a type that no table can have.
    """
    try:
        schema = to_arrow_schema(df.schema, timezone="UTC")
    except Exception as error:
        raise InputError(f"The DataFrame has a column that can't be written: {error}.") from None
    if not schema.names:
        raise InputError("The DataFrame has no columns.", hint="Select at least one.")
    for field in schema:
        _check_type(field.name, field.type)
    return pa.schema(schema)


def _check_type(name: str, kind: pa.DataType) -> None:
    """Name what Parquet would only find on an executor, behind a traceback."""
    if pa.types.is_null(kind):
        raise InputError(
            f"Column {name!r} has no type (void).", hint="Cast it: CAST(... AS STRING), say."
        )
    if pa.types.is_struct(kind) and kind.num_fields == 0:
        raise InputError(
            f"Column {name!r} is a struct without fields, which Parquet can't hold.",
            hint="Drop it, or give it a field.",
        )
    for inner in range(kind.num_fields):
        field = kind.field(inner)
        if (field.metadata or {}).get(b"variant") == b"true":
            raise InputError(
                f"Column {name!r} is a VARIANT, which is not written.",
                hint=f"Write its text: CAST({name} AS STRING), or to_json({name}).",
            )
        _check_type(f"{name}.{field.name}", field.type)
