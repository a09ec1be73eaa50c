"""``PostgresSink``: exactly-once appends and upserts of DataFrames to a PostgreSQL table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Unpack

import pyarrow as pa
from pyspark import SparkContext, TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import StructField, StructType

from eos.errors import InputError
from eos.participant import Upsert
from eos.postgres.part import PostgresPart
from eos.postgres.staged import Copied, CopyTarget, StagedRows, StagingColumn, TargetColumn
from eos.protocol import History, Part
from eos.retry import attempts
from eos.sinks._postgres_columns import as_sent, check_fits, created_type
from eos.sinks._stage_task import REPORT_SCHEMA, StageTask
from eos.sinks._upserts import IS_AMBIGUOUS, IS_DELETE, Upserts
from eos.sinks.options import PostgresSinkArguments, PostgresSinkOptions
from eos.sinks.output import Begun, ChangedColumns, Output, Write, collect_staged
from eos.sinks.sink import Sink

if TYPE_CHECKING:
    from eos.postgres.participant import PostgresParticipant

_NAME_BYTES: Final = 63


class PostgresSink(Sink):
    """Writes DataFrames to a PostgreSQL table exactly once: each epoch is one transaction of it.

    An instance is the function for ``foreachBatch``; ``write`` is for batch jobs::

        sink = PostgresSink(
            sink_id="orders", conninfo="postgresql://writer@db.example.com/shop",
            table="public.orders", merge_on=["id"], commit_log="/data/eos",
        )
        query = orders.writeStream.foreachBatch(sink).start()

    Tasks COPY their rows into a table of the attempt; the driver writes them to the target in one
    transaction, which also records the epoch in the table ``eos_epochs``. If the driver dies in
    between, no rows are lost, and ``eos recovery`` finishes without Spark. No prepared transactions
    are needed.

    Columns are matched by name, exactly or else without case; columns that rows lack get their
    defaults. Types as in Spark's JDBC source; arrays, json and jsonb, too. A value that does not
    fit is refused, never changed, and the error names row and column.

    The options are those of ``PostgresSinkOptions``.

    Raises:
        ConfigurationError: an option is missing, unknown or wrong.
    """

    options: PostgresSinkOptions

    def __init__(self, **options: Unpack[PostgresSinkArguments]) -> None:
        super().__init__(PostgresSinkOptions.parse(options))
        self.outputs()  # raises here

    def outputs(self) -> list[Output]:
        """Return the table."""
        return [PostgresOutput(self.options)]

    def __repr__(self) -> str:
        return f"PostgresSink(sink_id={self.options.sink_id!r}, table={self.options.table!r})"


@dataclass(frozen=True)
class _Written:
    """How a DataFrame's columns are written.

    Attributes:
        targets: columns of the table, in the order of staging columns c0, c1, ...
        places: their places in the DataFrame.
    """

    targets: tuple[TargetColumn, ...]
    places: tuple[int, ...]
    upsert: Upsert | None

    @property
    def staging(self) -> tuple[StagingColumn, ...]:
        return _staging_columns(self.targets, self.upsert)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.targets)


class PostgresOutput(Output):
    """A table as an output of a sink: plans how Spark's tasks copy rows to it."""

    participant: PostgresParticipant

    def __init__(self, options: PostgresSinkOptions) -> None:
        # Not at the top: ``eos`` has this class also where psycopg is not installed.
        from eos.postgres.database import Database
        from eos.postgres.participant import PostgresParticipant

        self._options = options
        self._upserts = Upserts.of(options)
        self._written: _Written | None = None
        self._checked: StructType | None = None
        schema, table = options.schema_and_table
        self._staging_schema = options.staging_schema or schema
        self.participant = PostgresParticipant(
            options.sink_id, Database(options.conninfo), schema, table, self._staging_schema
        )

    def is_written_by(self, part: Part) -> bool:
        """Whether ``part`` was written to the same table."""
        mine = self.participant.claimed(History(self._options.sink_id), "-")
        return isinstance(part, PostgresPart) and part.output == mine.output

    def on_open(self, history: History, df: DataFrame) -> None:
        """Create the table, if the log has never written to it."""
        self.participant.run("looking at the table", self.participant.table.check_kind)
        claim = self.participant.claimed(history, "-")
        may_create = self._options.on_new_cluster == "continue"
        if not may_create and history.last_begun(claim.key) is not None:
            return
        table, options = self.participant.table, self._options
        if self.participant.run("looking for the table", table.columns):
            return
        left_out = self._upserts.left_out(df)
        for name in df.columns:
            _check_length(name)
        columns = [
            (one.name, created_type(one.name, one.dataType))
            for one in df.schema.fields
            if one.name not in left_out
        ]
        self.participant.run(
            "creating the table", lambda c: table.create(c, columns, options.merge_on)
        )

    def check(self, df: DataFrame) -> None:
        """See ``Output``."""
        table, options = self.participant.table, self._options
        columns = self.participant.run("reading the table's columns", table.columns)
        if not columns:
            raise InputError(f"There is no table {table.name}.", hint="Create it, or restore it.")
        self._written = written = self._match(df, columns)
        if options.merge_on:
            keys = self.participant.run("reading the table's indexes", table.unique_keys)
            if frozenset(written.upsert.on if written.upsert else ()) not in keys:
                names = ", ".join(options.merge_on)
                raise InputError(
                    f"Table {table.name} has no unique index on ({names}), as merge_on needs.",
                    hint=f"CREATE UNIQUE INDEX ON {table.name} ({names}).",
                )
        # Once for each schema: a stream would log it in every epoch.
        if df.schema != self._checked:
            missing = [one.name for one in columns if one.name not in written.names]
            ChangedColumns((), missing).report(f"table {table.name}", options)
            self._checked = df.schema

    def _match(self, df: DataFrame, columns: Sequence[TargetColumn]) -> _Written:
        options, schema = self._options, df.schema
        optional = self._upserts.optional(df)
        names = [one.name for one in schema.fields]
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            raise InputError(f"The DataFrame has two columns {', '.join(sorted(twice))}.")
        targets: dict[str, tuple[TargetColumn, int]] = {}
        for place, one in enumerate(schema.fields):
            target = _found(one.name, columns)
            if target is None and one.name in optional:
                continue
            self._check_column(one, target)
            assert target is not None
            if target.name in targets:
                raise InputError(f"Two columns of the DataFrame are {target.name!r} in the table.")
            targets[target.name] = (target, place)
        self._check_missing(columns, targets)
        written = [target for target, _ in targets.values()]
        upsert = None
        if options.merge_on:
            keys = tuple(self._key(name, _found(name, written)) for name in options.merge_on)
            upsert = Upsert(keys, options.delete_when is not None)
        return _Written(tuple(written), tuple(place for _, place in targets.values()), upsert)

    def _check_column(self, one: StructField, target: TargetColumn | None) -> None:
        table = self.participant.table.name
        if target is None:
            raise InputError(
                f"Table {table} has no column {one.name!r}.",
                hint=f'ALTER TABLE {table} ADD COLUMN "{one.name}" ..., or drop it from the rows.',
            )
        if target.is_generated:
            raise InputError(
                f"Column {one.name!r} of table {table} is written by the database alone.",
                hint="Drop it from the rows.",
            )
        check_fits(one.name, one.dataType, target.base)

    def _check_missing(
        self, columns: Sequence[TargetColumn], targets: dict[str, tuple[TargetColumn, int]]
    ) -> None:
        for column in columns:
            needs_value = column.is_required and not (column.has_default or column.is_generated)
            if needs_value and column.name not in targets:
                raise InputError(
                    f"The rows have no column {column.name!r}, which table "
                    f"{self.participant.table.name} requires.",
                    hint="Add it to the rows, or give it a default in the table.",
                )

    def _key(self, name: str, target: TargetColumn | None) -> str:
        if target is None:
            raise InputError(f"The rows have no column {name!r}, which merge_on names.")
        return target.name

    def plan(self, df: DataFrame, context: SparkContext, begun: Begun) -> Write:
        """See ``Output``."""
        written = self._written
        assert written is not None
        sent = self._sent(df, written)
        part = begun()
        assert isinstance(part, PostgresPart)
        columns = tuple(column.name for column in written.staging)
        target = CopyTarget(
            attempts(self._options.resolve_timeout_s)(self.participant.login),
            self._staging_schema,
            part.staging,
            columns,
            (*written.names, *columns[len(written.names) :]),
        )
        task = StageTask(target, str(part.attempt_id), columns, self._upserts, _copied)
        writing = sent.mapInArrow(task, REPORT_SCHEMA)

        def write() -> Sequence[StagedRows]:
            table = self.participant.table
            attempts(self._options.resolve_timeout_s)(
                self.participant.run,
                "creating a staging table",
                lambda c: table.create_staging(c, part, written.staging),
            )
            copied = tuple(map(Copied.from_json, collect_staged(writing, context)))
            return [StagedRows(copied, written.names, written.upsert)]

        return write

    def _sent(self, df: DataFrame, written: _Written) -> DataFrame:
        """Return the rows as the staging table has them, except for the column ``run``."""
        fields = df.schema.fields
        names = [fields[place].name for place in written.places]
        numbered = self._upserts.numbered(df, names)
        columns = [
            as_sent(f.col(f"c{place}"), fields[place].dataType, target.base).alias(f"c{n}")
            for n, (target, place) in enumerate(zip(written.targets, written.places, strict=True))
        ]
        flags = [name for name in numbered.columns if name in (IS_DELETE, IS_AMBIGUOUS)]
        return numbered.select(*columns, *flags)


def _check_length(name: str) -> None:
    if len(name.encode()) > _NAME_BYTES:
        raise InputError(
            f"Column {name!r} has a name of more than {_NAME_BYTES} bytes, which PostgreSQL cuts.",
            hint="Rename it.",
        )


def _found(name: str, columns: Iterable[TargetColumn]) -> TargetColumn | None:
    """Return the column of that name; else the only one that differs from it in case."""
    # PostgreSQL folds names to lower case where they are not quoted, Spark ignores case.
    like = [one for one in columns if one.name.lower() == name.lower()]
    exact = [one for one in like if one.name == name]
    return next(iter(exact), like[0] if len(like) == 1 else None)


def _staging_columns(
    targets: Sequence[TargetColumn], upsert: Upsert | None
) -> tuple[StagingColumn, ...]:
    if upsert is None:
        return tuple(
            StagingColumn(f"c{n}", one.type, one.is_required) for n, one in enumerate(targets)
        )
    columns = [
        # A row that deletes its key may lack the other columns.
        StagingColumn(f"c{n}", one.base, one.name in upsert.on)
        for n, one in enumerate(targets)
    ]
    flags = [StagingColumn(IS_DELETE, "boolean", is_required=True)] if upsert.deletes else []
    return (*columns, *flags)


def _copied(batches: Iterable[pa.RecordBatch], target: CopyTarget, **_: object) -> Sequence[Copied]:
    """Copy a task's rows; see ``StageTask.stage``."""
    from eos.postgres.copying import copy_rows

    context = TaskContext.get()
    assert context is not None
    return [copy_rows(batches, target, run=context.taskAttemptId())]
