"""The PostgreSQL participant: an attempt stages rows; its commit is one transaction. Spark-free.

``prepare`` does the whole work of the commit and leaves the transaction open, so that ``commit``
has nothing left that can fail but the connection. Without it, by another process for example, the
rows are written from the staging table. Nothing expires.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, TypeVar

from eos.errors import ConfigurationError, EosError, InputError, Retriable
from eos.forking import stay_in_process
from eos.participant import Attempt, Audited, Kept, VersionedParticipant
from eos.postgres._target_table import (
    KEPT,
    Ending,
    PostgresTable,
    SqlConnection,
    StagedRowsMissing,
    check_schema,
)
from eos.postgres.database import Database, failures, psycopg
from eos.postgres.part import PostgresPart
from eos.protocol import ABORTED, COMMITTED, Fate, History, Known, LogRecord, Part, unknown
from eos.retry import Patience, attempts

logger = logging.getLogger(__name__)

T = TypeVar("T")
# A connection that rested longer than this is tried before it is used.
_RESTED_S: Final = 1.0
# A password file may have another password by now, with which executors have to log in.
_LOGIN_S: Final = 60.0
# A deadlock is resolved by writing the same staged rows again.
_PREPARE_S: Final = 20.0
_LOST: Final = Fate(Known.ABORTED, "its staged rows are gone")


class PostgresParticipant(VersionedParticipant[PostgresPart]):
    """Begin, prepare, commit, abort and outcome of a sink's attempts to write one table.

    Args:
        staging_schema: of ``eos_epochs`` and the staging tables.
    """

    place = "database and table (conninfo, table)"
    _older = "an older copy of the database was restored, or a replica that lacked it was promoted"

    def __init__(
        self, sink_id: str, database: Database, schema: str, table: str, staging_schema: str
    ) -> None:
        self.database = database
        self.table = PostgresTable(schema, table, staging_schema)
        self._names = (schema, table, staging_schema)
        self._sink_id = sink_id
        self._was_elsewhere = False  # the log's newest claim is of other places
        self._open: SqlConnection | None = None
        self._opened_at = self._used_at = 0.0
        self._is_marked = False
        # The attempt whose transaction is open on the connection.
        self._prepared: str | None = None

    def run(self, action: str, work: Callable[[SqlConnection], T]) -> T:
        """Run ``work`` on the participant's connection, which stays open.

        Raises:
            EosError: as ``eos.postgres.database.failures``.
        """
        with failures(action):
            return work(self._connected())

    def login(self) -> Database:
        """How executors reach the database now.

        Raises:
            EosError: as ``run``.
        """
        if time.monotonic() - self._opened_at > _LOGIN_S:
            self._disconnect()
        return self.run("looking up the login", self.database.for_executors)

    def _connected(self) -> SqlConnection:
        if self._prepared is not None:
            self._disconnect()  # an attempt that was given up; the server takes its rows back
        if self._open is not None and time.monotonic() - self._used_at > _RESTED_S:
            try:
                self._open.execute("SELECT 1")
            except psycopg.Error:
                self._disconnect()
        if self._open is None or self._open.closed:
            self._open = self.database.connect(f"eos {self._sink_id}"[:60])
            self._opened_at = time.monotonic()
        self._used_at = time.monotonic()
        return self._open

    def _disconnect(self) -> None:
        self._prepared = None
        if self._open is not None:
            with suppress(psycopg.Error):
                self._open.close()
        self._open = None

    # --- the claim -----------------------------------------------------------------------------

    def claimed(self, history: History, log_table_id: str) -> PostgresPart:
        """The table, and this log's id."""
        # Only the place, and no login: the log has more readers than the database.
        schema, table, staging_schema = self._names
        return PostgresPart(
            place=self.database.place,
            schema=schema,
            table=table,
            staging_schema=staging_schema,
            log=log_table_id,
        )

    def traces(self) -> list[str]:
        """Whether a log of this sink has committed to the table: called if there is no log."""

        def look(connection: SqlConnection) -> bool:
            return self.table.has_ledger(connection) and self.table.other_logs(
                connection, self._sink_id
            )

        found = self.run("looking for earlier rows of the sink", look)
        return [f"table {self.table.name} has rows of it"] if found else []

    def missing(self, claim: Part, history: History) -> str | None:
        """Report a database without the mark of this log, or without the table."""
        if history.last_begun(claim.key) is None:
            return None
        mine = _own(claim)
        # The mark is version 0 of this log. A copy that was restored has it: see lost_commit.
        if not self._endings(mine)[0]:
            where = f"{mine.staging_schema}.eos_epochs"
            return f"the database ({mine.place}) has no row of this log in {where}"
        if not self.run("looking for the table", self.table.columns):
            return f"there is no table {mine.target}"
        return None

    def make(self, claim: Part, *, in_recovery: bool) -> None:
        """Check that the sink's own tables can be there."""
        mine = _own(claim)
        self.run("looking for its schema", lambda c: check_schema(c, mine.staging_schema))

    def _newest(self, part: PostgresPart) -> int | None:
        return self._endings(part)[2]

    def lost_commit(self, claim: Part, history: History) -> str | None:
        """See ``VersionedParticipant``."""
        last = history.last_claim
        self._was_elsewhere = last is None or all(one.key != claim.key for one in last.participants)
        return super().lost_commit(claim, history)

    def _is_target(self, part: PostgresPart, _: str | None) -> bool:
        # The same database at another place, moved or by another name, or one that the log returns
        # to, is known by its mark, if the log comes from elsewhere: two outputs may have tables of
        # one name. A new database has the mark from its first attempt on, and no commit.
        if part.target != self.table.name:
            return False
        is_marked, _, newest = self._endings(part)
        is_moved = self._was_elsewhere and newest > 0
        return is_marked and (is_moved or part.place == self.database.place)

    def ready(self, history: History) -> None:
        """Drop staging tables that earlier attempts have left."""
        # Of dead drivers, and of late tasks that held their table when its attempt ended.
        self._drop_staging(self._claim.staging_prefix)

    def _drop_staging(self, prefix: str) -> None:
        try:
            self.run("dropping staging tables", lambda c: self.table.drop_staging(c, prefix))
        except EosError as error:
            logger.info("staging tables of %s stay for now: %s", self.table.name, error)

    def _endings(self, part: PostgresPart) -> tuple[bool, Ending | None, int]:
        def ask(connection: SqlConnection) -> tuple[bool, Ending | None, int]:
            if not self.table.has_ledger(connection):
                return False, None, 0
            return self.table.endings(connection, self._sink_id, part)

        return self.run("reading eos_epochs", ask)

    # --- an epoch ------------------------------------------------------------------------------

    def begin(self, attempt: Attempt) -> PostgresPart:
        """Name the next version; nothing is written yet.

        Raises:
            NewCluster: a commit of this process is missing in the database.
        """
        part = self._begun(self._newest(self._claim))
        if not self._is_marked:
            self._mark(self._claim)
        return part

    def _mark(self, claim: PostgresPart) -> None:
        # Here, not in ``make``: recovery claims the sink, too, and begins nothing. A mark of it in
        # another database would prove that nothing was committed there.
        def create(connection: SqlConnection) -> None:
            if not self.table.has_ledger(connection):
                self.table.create_ledger(connection)
            self.table.mark(connection, self._sink_id, claim)

        self.run("creating eos_epochs", create)
        self._is_marked = True

    def count(self, part: Part, written: Sequence[Any]) -> PostgresPart:
        """Take the runs from a ``StagedRows``."""
        (staged,) = written
        # Tasks without rows have not connected, and have no run in the staging table.
        with_rows = [one for one in staged.copied if one.rows]
        return replace(
            _own(part),
            names=staged.names,
            upsert=staged.upsert,
            runs=tuple(one.run for one in with_rows),
            rows=sum(one.rows for one in with_rows),
            size_bytes=sum(one.size_bytes for one in with_rows),
        )

    def prepare(self, record: LogRecord, part: Part) -> PostgresPart:
        """Do the work of the commit, and leave its transaction open.

        Raises:
            InputError: rows violate a constraint.
            Retriable: the database failed, or staged rows are gone: the epoch runs again.
        """
        mine = _own(part)
        try:
            for attempt in attempts(_PREPARE_S):
                with attempt:
                    self.run("writing the epoch's rows", lambda c: self._prepare(c, mine))
        except StagedRowsMissing:
            raise Retriable(f"Staged rows of {mine.label} are gone.") from None
        return mine

    def _prepare(self, connection: SqlConnection, part: PostgresPart) -> None:
        # Not the role's default: a second process must see the row that it waited for.
        connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")
        try:
            ended = self.table.apply(connection, self._sink_id, part)
            if ended is not None:  # by the driver of a newer copy of the log
                raise Retriable(f"{part.label} was used by another attempt.")
        except BaseException:
            self._disconnect()
            raise
        self._prepared = part.attempt_id

    def _commit_once(self, part: PostgresPart) -> Fate:
        is_prepared = self._prepared is not None and self._prepared == part.attempt_id
        try:
            if is_prepared and self._open is not None:
                self._prepared = None
                with failures("committing"):
                    done = self._open.execute("COMMIT").statusmessage
                # A transaction that has failed is rolled back without an error.
                return COMMITTED if done == "COMMIT" else unknown(f"{part.label}: {done}")
            return self._write_staged(part)
        except Retriable as error:
            self._disconnect()
            return unknown(f"{part.label}: {error.message}".rstrip("."))
        except (InputError, ConfigurationError) as error:
            self._disconnect()
            return unknown(
                f"{part.label} can't be written any more, as its table was changed: "
                f"{error.message} {error.hint}".strip().rstrip(".")
            )

    def _write_staged(self, part: PostgresPart) -> Fate:
        # Asked first: the transaction that follows would wait for nothing if all is known.
        before = self.outcome(part, timeout_s=0.0)
        is_staged = before.known is Known.UNKNOWN and before.why == _staged(part).why
        if not is_staged:
            return before

        def write(connection: SqlConnection) -> Ending | None:
            with connection.transaction():
                return self.table.apply(connection, self._sink_id, part)

        try:
            ended = self.run("writing the epoch's rows", write)
        except StagedRowsMissing:
            return _LOST
        return COMMITTED if ended is None else _ended(part, ended)

    def abort(self, part: Part, *, deadline_s: float, is_own: bool) -> Fate:
        """Record it as aborted, so that no process commits it, and drop its staging table."""
        mine = _own(part)
        if self._prepared == mine.attempt_id:
            self._disconnect()
        patience = Patience(deadline_s)
        while True:
            try:
                if not self._endings(mine)[0]:
                    # Without figures it was never PREPARED, so no process commits it.
                    return ABORTED if mine.rows is None else _elsewhere(mine)
                ended = self.run(
                    "aborting",
                    lambda c: self.table.end_without_rows(c, self._sink_id, mine),
                )
            except EosError as error:
                if patience.is_over or not isinstance(error, Retriable):
                    return unknown(f"{mine.label}: {error.message}".rstrip("."))
                patience.pause()
                continue
            if ended not in (None, "aborted"):
                return _ended(mine, ended)
            self._drop_staging(mine.staging)
            return ABORTED

    def outcome(self, part: Part, *, timeout_s: float) -> Fate:
        """The outcome by ``eos_epochs``, and by the staging table."""
        mine = _own(part)
        assert mine.version is not None
        try:
            # In this order: a commit between the two questions is seen by the second.
            is_staged = self.run("looking", lambda c: self.table.is_staged(c, mine))
            has_mark, ending, newest = self._endings(mine)
        except EosError as error:
            return unknown(f"the database of {mine.label} can't be read: {error.message}")
        if not has_mark:
            return _elsewhere(mine)
        if ending is not None:
            return _ended(mine, ending)
        if mine.version <= newest - KEPT:
            return unknown(f"{mine.label} is older than the rows that eos_epochs keeps")
        if is_staged or mine.rows == 0:
            return _staged(mine)
        return _LOST

    def audit(self, committed: Sequence[Part]) -> list[Audited | None]:
        """See ``Participant``: by ``eos_epochs``. Rows have no marks, so they are not read."""
        return [self._audited(part) for part in map(_own, committed)]

    def _audited(self, part: PostgresPart) -> Audited | None:
        has_mark, ending, newest = self._endings(part)
        # The same database may have been at another place. Without a mark it is another one.
        is_here = has_mark and (ending is not None or part.place == self.database.place)
        if part.target != self.table.name or not is_here:
            return None
        if ending == "committed":
            return Audited(Kept.CHANGED, "rows have no marks: only their commits were checked")
        if ending is None and (part.version or 0) <= newest - KEPT:
            return Audited(Kept.UNKNOWN, "not checkable: eos_epochs no longer has them")
        return Audited(Kept.LOST, "commit is not in eos_epochs")

    def readable(self, aborted: Sequence[Part]) -> Sequence[Part]:
        """See ``Participant``: those that ``eos_epochs`` has as committed."""
        return [part for part in aborted if self._endings(_own(part))[1] == "committed"]

    # --- housekeeping --------------------------------------------------------------------------

    def after_end(self, record: LogRecord, part: Part, *, is_last: bool) -> None:
        """Drop the staging table."""
        mine = _own(part)
        if mine.attempt_id is not None and mine.rows != 0:
            self._drop_staging(mine.staging)

    def close(self) -> None:
        """Close the connection."""
        self._disconnect()


stay_in_process(PostgresParticipant)


def _staged(part: PostgresPart) -> Fate:
    return unknown(f"{part.label} is staged")


def _elsewhere(part: PostgresPart) -> Fate:
    return unknown(f"{part.label} was in another database, or eos_epochs was lost")


def _ended(part: PostgresPart, ending: Ending) -> Fate:
    match ending:
        case "committed":
            return COMMITTED
        case "aborted":
            return ABORTED
    return unknown(f"{part.label} is another attempt's in eos_epochs: the log is an older copy")


def _own(part: Part) -> PostgresPart:
    assert isinstance(part, PostgresPart)
    return part
