"""The target table, the sink's own tables, and the transaction that commits an attempt.

``eos_epochs`` holds a row for each ended attempt. Its primary key is the fence: of two processes
that end an attempt, the second one waits for the first, and finds its row. The row is written with
the rows of the epoch, so it is also the witness.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, Literal

from eos.errors import ConfigurationError, InputError
from eos.participant import Upsert
from eos.postgres.database import DURABLE, psycopg, sql
from eos.postgres.part import PostgresPart
from eos.postgres.staged import StagingColumn, TargetColumn

SqlConnection = psycopg.Connection[Any]
Ending = Literal["committed", "aborted", "other"]
"""How a version ended; ``other``: it is another attempt's."""

LEDGER: Final = "eos_epochs"
# Rows of a log and target in the ledger; older ones are deleted with each commit.
KEPT: Final = 10_000
# A driver that hangs in its prepared transaction keeps others from its rows for so long.
_IDLE_S = 10
_LOCK_S: Final = 5


class StagedRowsMissing(Exception):
    """The staging table is gone, or has lost rows: the attempt can't be committed any more."""


class PostgresTable:
    """The table that a sink writes, and ``eos_epochs``.

    Args:
        staging_schema: of ``eos_epochs`` and of staging tables.
    """

    def __init__(self, schema: str, table: str, staging_schema: str) -> None:
        self.name = f"{schema}.{table}"
        self._names = (schema, table)
        self._identifier = sql.Identifier(schema, table)
        self._ledger = sql.Identifier(staging_schema, LEDGER)
        self._staging_schema = staging_schema

    def columns(self, connection: SqlConnection) -> tuple[TargetColumn, ...]:
        """Return the table's columns in their order; none if there is no table of this name."""
        # Not information_schema, which shows only what the user may read.
        rows = connection.execute(
            "SELECT a.attname, format_type(a.atttypid, a.atttypmod), "
            "CASE t.typtype WHEN 'd' THEN format_type(t.typbasetype, t.typtypmod) "
            "ELSE format_type(a.atttypid, a.atttypmod) END, "
            "a.attnotnull OR t.typnotnull, a.atthasdef OR a.attidentity <> '', "
            "a.attgenerated <> '' OR a.attidentity = 'a' "
            "FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid "
            "JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_type t ON t.oid = a.atttypid "
            "WHERE n.nspname = %s AND c.relname = %s AND a.attnum > 0 AND NOT a.attisdropped "
            "ORDER BY a.attnum",
            self._names,
        )
        return tuple(TargetColumn(*row) for row in rows)

    def check_kind(self, connection: SqlConnection) -> None:
        """Check that rows go to tables of this database, if there is something of the name.

        Raises:
            ConfigurationError: it is a view, a foreign table or the like, or has a foreign
                partition: what another server commits is not part of the transaction. Or it is
                unlogged: a crash of the server empties it.
        """
        found = connection.execute(
            "WITH RECURSIVE every (oid) AS (SELECT c.oid FROM pg_class c "
            "JOIN pg_namespace n ON n.oid = c.relnamespace "
            "WHERE n.nspname = %s AND c.relname = %s UNION "
            "SELECT i.inhrelid FROM pg_inherits i JOIN every e ON i.inhparent = e.oid) "
            "SELECT c.oid::regclass::text, CASE WHEN c.relkind = 'f' THEN 'on another server' "
            "WHEN c.relkind IN ('r', 'p') THEN 'unlogged' ELSE 'no table' END "
            "FROM every JOIN pg_class c USING (oid) "
            "WHERE c.relkind NOT IN ('r', 'p') OR c.relpersistence <> 'p' LIMIT 1",
            self._names,
        ).fetchone()
        if found is not None:
            raise ConfigurationError(
                f"{found[0]} is {found[1]}, so rows of {self.name} can't be written exactly once.",
                hint="Write to a table of this database; ALTER TABLE ... SET LOGGED if it is "
                "unlogged.",
            )

    def unique_keys(self, connection: SqlConnection) -> list[frozenset[str]]:
        """Return the columns of each unique index that ``ON CONFLICT`` can use."""
        # Partial and expression indexes, and deferrable ones, are no arbiters of ON CONFLICT.
        rows = connection.execute(
            "SELECT array_agg(a.attname::text) FROM pg_index i "
            "JOIN pg_class c ON c.oid = i.indrelid JOIN pg_namespace n ON n.oid = c.relnamespace "
            "JOIN pg_attribute a ON a.attrelid = c.oid "
            "AND a.attnum = ANY((i.indkey::int2[])[0:i.indnkeyatts - 1]) "
            "WHERE n.nspname = %s AND c.relname = %s AND i.indisunique AND i.indisvalid "
            "AND i.indimmediate AND i.indpred IS NULL AND i.indexprs IS NULL "
            "GROUP BY i.indexrelid",
            self._names,
        )
        return [frozenset(names) for (names,) in rows]

    def create(
        self, connection: SqlConnection, columns: Iterable[tuple[str, str]], key: Sequence[str]
    ) -> None:
        """Create the table with these columns and types, unless it is there; ``key`` is primary."""
        parts = [
            sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(kind)) for name, kind in columns
        ]
        if key:
            names = _joined(map(sql.Identifier, key))
            parts.append(sql.SQL("PRIMARY KEY ({})").format(names))
        self._create(connection, self._identifier, _joined(parts))

    def create_ledger(self, connection: SqlConnection) -> None:
        """Create ``eos_epochs``, unless it is there."""
        self._create(
            connection,
            self._ledger,
            sql.SQL(
                "sink text, log text, target text, version bigint, attempt text, "
                "outcome text NOT NULL, records bigint, "
                "ended_at timestamptz NOT NULL DEFAULT now(), "
                "PRIMARY KEY (sink, log, target, version)"
            ),
        )

    def _create(
        self, connection: SqlConnection, name: sql.Identifier, body: sql.Composable
    ) -> None:
        statement = sql.SQL("CREATE TABLE IF NOT EXISTS {} ({})").format(name, body)
        try:
            connection.execute(statement)
        except psycopg.errors.UniqueViolation:  # another process creates it at this moment
            connection.execute(statement)

    def has_ledger(self, connection: SqlConnection) -> bool:
        """Whether ``eos_epochs`` is there."""
        return self._exists(connection, LEDGER)

    def _exists(self, connection: SqlConnection, table: str) -> bool:
        names = (self._staging_schema, table)
        return bool(
            connection.execute(
                "SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
                "WHERE n.nspname = %s AND c.relname = %s",
                names,
            ).fetchone()
        )

    def mark(self, connection: SqlConnection, sink_id: str, part: PostgresPart) -> None:
        """Write version 0 of the log, by which its database is known."""
        connection.execute(self._insert(sink_id, replace(part, version=0), "claimed"))

    def other_logs(self, connection: SqlConnection, sink_id: str) -> bool:
        """Whether any log of this sink has committed to the target."""
        statement = sql.SQL(
            "SELECT 1 FROM {} WHERE sink = {} AND target = {} AND outcome = 'committed' LIMIT 1"
        ).format(self._ledger, sql.Literal(sink_id), sql.Literal(self.name))
        return connection.execute(statement).fetchone() is not None

    def endings(
        self, connection: SqlConnection, sink_id: str, part: PostgresPart
    ) -> tuple[bool, Ending | None, int]:
        """Return whether the log's mark is there, how ``part`` ended (None: not that is known), and
        the newest committed version."""
        statement = sql.SQL(
            "SELECT bool_or(version = 0), "
            "max(CASE WHEN attempt = {attempt} THEN outcome ELSE 'other' END) "
            "FILTER (WHERE version = {version}), "
            "coalesce(max(version) FILTER (WHERE outcome = 'committed'), 0) FROM {ledger} "
            "WHERE (sink, log, target) = ({key})"
        ).format(
            attempt=sql.Literal(part.attempt_id),
            version=sql.Literal(part.version or -1),
            ledger=self._ledger,
            key=_literals(sink_id, part.log, part.target),
        )
        has_mark, ending, newest = connection.execute(statement).fetchone() or (None, None, 0)
        return bool(has_mark), ending, newest

    # --- staging -------------------------------------------------------------------------------

    def create_staging(
        self, connection: SqlConnection, part: PostgresPart, columns: Iterable[StagingColumn]
    ) -> None:
        """Create the attempt's staging table, for ``eos.postgres.copying``."""
        # The run tells rows of a task's two runs apart. Names of columns are ours, as a user's name
        # may be anything; types are the server's own text.
        parts = [sql.SQL("run bigint NOT NULL")]
        for column in columns:
            required = sql.SQL(" NOT NULL" if column.is_required else "")
            name = sql.Identifier(column.name)
            parts.append(sql.SQL("{} {}{}").format(name, sql.SQL(column.type), required))  # type: ignore[arg-type]
        connection.execute(
            sql.SQL("CREATE TABLE IF NOT EXISTS {} ({}) WITH (autovacuum_enabled = false)").format(
                self._staging(part), _joined(parts)
            )
        )

    def _staging(self, part: PostgresPart) -> sql.Identifier:
        return sql.Identifier(self._staging_schema, part.staging)

    def is_staged(self, connection: SqlConnection, part: PostgresPart) -> bool:
        """Whether the attempt's staging table is there."""
        return self._exists(connection, part.staging)

    def drop_staging(self, connection: SqlConnection, prefix: str) -> None:
        """Drop all staging tables whose names begin with ``prefix``."""
        names = connection.execute(
            "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            "WHERE n.nspname = %s AND starts_with(c.relname::text, %s) AND c.relkind = 'r'",
            (self._staging_schema, prefix),
        ).fetchall()
        # One transaction each: a table that is in use keeps no other.
        for (name,) in names:
            with connection.transaction():
                # A late task may still be writing to it.
                connection.execute("SET LOCAL lock_timeout = '2s'")
                table = sql.Identifier(self._staging_schema, name)
                connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(table))

    # --- the end of an attempt -----------------------------------------------------------------

    def apply(self, connection: SqlConnection, sink_id: str, part: PostgresPart) -> Ending | None:
        """Write the attempt's rows and its row in ``eos_epochs``, in the open transaction.

        Returns:
            How the attempt was ended before; None: it was not, and the rows are written.

        Raises:
            StagedRowsMissing: they are not all there.
        """
        _set_limits(connection)
        ended = self._end(connection, sink_id, part, "committed")
        # An epoch without rows has no staging table.
        if ended is not None or not part.rows:
            return ended
        # Not the number that INSERT reports: triggers may leave rows out.
        count = sql.SQL("SELECT count(*) FROM {} WHERE run = ANY({})").format(
            self._staging(part), _runs(part)
        )
        try:
            found = connection.execute(count).fetchone()
        except psycopg.errors.UndefinedTable:
            raise StagedRowsMissing from None
        if found != (part.rows,):
            raise StagedRowsMissing
        if part.upsert is not None:
            self._check_keys(connection, part, part.upsert)
        for statement in self._write(part):
            connection.execute(statement)
        # Deferred checks run here, not at the end: a prepared transaction must commit.
        connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
        return None

    def _check_keys(self, connection: SqlConnection, part: PostgresPart, upsert: Upsert) -> None:
        # Spark has staged each key once, but by its own equality: a uuid in other case is another.
        places = [(part.names or ()).index(name) for name in upsert.on]
        statement = sql.SQL(
            "SELECT 1 FROM {} WHERE run = ANY({}) GROUP BY {} HAVING count(*) > 1 LIMIT 1"
        ).format(
            self._staging(part),
            _runs(part),
            _joined(sql.Identifier(f"c{place}") for place in places),
        )
        if connection.execute(statement).fetchone() is not None:
            raise InputError(
                f"Keys ({', '.join(upsert.on)}) of several rows are equal for the database, and "
                "not for Spark: in another case, or with spaces at the end, for example.",
                hint="Cast the key's columns to one form, for example lower(...).",
            )

    def end_without_rows(
        self, connection: SqlConnection, sink_id: str, part: PostgresPart
    ) -> Ending | None:
        """Record the attempt as aborted, unless it has ended; return how it had ended."""
        with connection.transaction():
            _set_limits(connection)
            return self._end(connection, sink_id, part, "aborted")

    def _end(
        self, connection: SqlConnection, sink_id: str, part: PostgresPart, ending: Ending
    ) -> Ending | None:
        assert part.version is not None
        mine = connection.execute(self._insert(sink_id, part, ending))
        if mine.rowcount == 0:
            return self.endings(connection, sink_id, part)[1]
        # By primary key, so the cost does not grow with the epochs.
        old = sql.SQL(
            "DELETE FROM {} WHERE (sink, log, target) = ({}) AND version BETWEEN 1 AND {}"
        ).format(
            self._ledger,
            _literals(sink_id, part.log, part.target),
            sql.Literal(part.version - KEPT),
        )
        connection.execute(old)
        return None

    def _insert(self, sink_id: str, part: PostgresPart, outcome: str) -> sql.Composed:
        values = (sink_id, part.log, part.target, part.version, part.attempt_id, outcome, part.rows)
        return sql.SQL(
            "INSERT INTO {} (sink, log, target, version, attempt, outcome, records) "
            "VALUES ({}) ON CONFLICT DO NOTHING"
        ).format(self._ledger, _literals(*values))

    def _write(self, part: PostgresPart) -> Iterator[sql.Composed]:
        names, upsert = part.names or (), part.upsert
        staged = dict(zip(names, (sql.Identifier(f"c{n}") for n in range(len(names))), strict=True))
        insert = sql.SQL("INSERT INTO {} ({}) SELECT {} FROM newest").format(
            self._identifier, _joined(map(sql.Identifier, names)), _joined(staged.values())
        )
        newest = sql.SQL("WITH newest AS (SELECT * FROM {} WHERE run = ANY({}))").format(
            self._staging(part), _runs(part)
        )
        if upsert is None:
            yield newest + sql.SQL(" ") + insert
            return
        changed = [sql.Identifier(name) for name in names if name not in upsert.on]
        update = sql.SQL("UPDATE SET {}").format(
            _joined(sql.SQL("{0} = EXCLUDED.{0}").format(name) for name in changed)
        )
        same = sql.SQL(" AND ").join(
            sql.SQL("old.{} = newest.{}").format(sql.Identifier(name), staged[name])
            for name in upsert.on
        )
        if upsert.deletes:
            # Before the other rows: one of them may have a unique value of a row that goes.
            yield newest + sql.SQL(
                " DELETE FROM {} AS old USING newest WHERE newest.is_delete AND {}"
            ).format(self._identifier, same)
        yield sql.SQL("{newest} {insert}{kept} ON CONFLICT ({key}) DO {action}").format(
            newest=newest,
            insert=insert,
            kept=sql.SQL(" WHERE NOT is_delete" if upsert.deletes else ""),
            key=_joined(map(sql.Identifier, upsert.on)),
            action=update if changed else sql.SQL("NOTHING"),
        )


def _set_limits(connection: SqlConnection) -> None:
    connection.execute(
        sql.SQL(
            DURABLE + "SET LOCAL lock_timeout = {lock}; SET LOCAL statement_timeout = 0; "
            "SET LOCAL idle_in_transaction_session_timeout = {idle}; SET LOCAL TIME ZONE 'UTC'"
        ).format(lock=sql.Literal(f"{_LOCK_S}s"), idle=sql.Literal(f"{_IDLE_S}s"))
    )


# Statements with names in them have no parameters: a percent sign in a name would be one.
def _literals(*values: object) -> sql.Composed:
    return _joined(map(sql.Literal, values))


def _runs(part: PostgresPart) -> sql.Literal:
    return sql.Literal(list(part.runs or ()))


def _joined(parts: Iterable[sql.Composable]) -> sql.Composed:
    return sql.SQL(", ").join(parts)


def check_schema(connection: SqlConnection, name: str) -> None:
    """Check that a schema is there.

    Raises:
        ConfigurationError: it is not.
    """
    found = connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (name,))
    if found.fetchone() is None:
        raise ConfigurationError(
            f"The database has no schema {name!r}.", hint=f'CREATE SCHEMA "{name}".'
        )
