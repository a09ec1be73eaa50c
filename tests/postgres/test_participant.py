"""The contract of participants on a PostgreSQL table, and what its witness proves."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest

from eos.commit_log import CommitLog
from eos.committer import Claim, Participants
from eos.errors import InDoubt, InputError, NewCluster, Retriable
from eos.participant import Attempt
from eos.postgres.database import TEXT_SETTINGS, Database
from eos.postgres.part import PostgresPart
from eos.postgres.participant import PostgresParticipant
from eos.protocol import BATCH, History, Known, LogRecord, Reason, ReasonKind, Stage, State
from eos.testing import PostgresServer, SinkContract
from tests.postgres.attempts import TableUnderTest
from tests.support.postgres import Shop, log_in

pytestmark = pytest.mark.broker
RECORD = LogRecord.claimed(sink_id="contract", run_id="r", participants=())


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch, postgres_server: PostgresServer) -> None:
    """A driver that sleeps in its prepared transaction is not waited for as long."""
    monkeypatch.setattr("eos.postgres._target_table._IDLE_S", 1)
    log_in(monkeypatch, postgres_server)


class TestPostgres(SinkContract):
    @pytest.fixture
    def output(self, shop: Shop) -> TableUnderTest:
        shop.execute("CREATE TABLE words (word text)")
        return TableUnderTest(shop)


class _Table(TableUnderTest):
    """With a participant that has the log's claim."""

    def claimed(self, log: str = "a" * 8, begun: int = 0) -> PostgresParticipant:
        participant = self.participant()
        claim = participant.claimed(History(self.sink_id), log)
        participant.make(claim, in_recovery=False)
        participant.attach(claim, History(self.sink_id))
        participant._version = begun
        return participant

    def begin(self, participant: PostgresParticipant) -> PostgresPart:
        return participant.begin(Attempt(BATCH, "a", 1, None, False))

    def counted(self, participant: PostgresParticipant, *rows: str) -> PostgresPart:
        part = self.begin(participant)
        return participant.count(part, self.write(part, rows))

    def prepared(self, participant: PostgresParticipant, *rows: str) -> PostgresPart:
        return participant.prepare(RECORD, self.counted(participant, *rows))


@pytest.fixture
def table(shop: Shop) -> _Table:
    shop.execute("CREATE TABLE words (word text)")
    return _Table(shop)


@pytest.fixture
def mine(table: _Table) -> Iterator[PostgresParticipant]:
    participant = table.claimed()
    yield participant
    participant.close()


@pytest.fixture
def other(table: _Table, mine: PostgresParticipant) -> Iterator[PostgresParticipant]:
    """Of another process, such as recovery."""
    participant = table.claimed()
    yield participant
    participant.close()


def test_a_prepared_attempt_is_committed_by_one_statement(
    table: _Table, mine: PostgresParticipant
) -> None:
    part = table.prepared(mine, "one", "two")
    assert table.read() == []
    assert mine.commit(part, deadline_s=5, is_own=True).known is Known.COMMITTED
    assert sorted(table.read()) == ["one", "two"]


def test_rows_of_task_runs_that_spark_did_not_take_are_left_out(
    table: _Table, mine: PostgresParticipant
) -> None:
    part = table.counted(mine, "one")
    table.copy(part, ["one"])  # speculation
    part = mine.prepare(RECORD, part)
    mine.commit(part, deadline_s=5, is_own=True)
    assert table.read() == ["one"]


def test_a_server_killed_after_prepare_has_the_rows_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with PostgresServer() as server:
        log_in(monkeypatch, server)
        with psycopg.connect(server.conninfo, autocommit=True) as connection:
            connection.execute("CREATE TABLE words (word text)")
        table = _Table(Shop(server, "public"))
        mine = table.claimed()
        part = table.prepared(mine, "one", "two")
        server.kill()
        assert mine.commit(part, deadline_s=0, is_own=True).known is Known.UNKNOWN
        server.start()
        assert table.read() == []
        for _ in range(2):
            assert mine.commit(part, deadline_s=5, is_own=True).known is Known.COMMITTED
            assert sorted(table.read()) == ["one", "two"]
        mine.close()


def test_a_commit_whose_answer_was_lost_is_found(
    table: _Table,
    mine: PostgresParticipant,
    other: PostgresParticipant,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The server must not end the session before it commits.
    monkeypatch.setattr("eos.postgres._target_table._IDLE_S", 30)
    part = table.prepared(mine, "one")
    assert mine._open is not None
    mine._open.execute("COMMIT")
    mine._open.close()
    assert mine.commit(part, deadline_s=5, is_own=True).known is Known.COMMITTED
    assert other.outcome(part, timeout_s=5).known is Known.COMMITTED
    assert table.read() == ["one"]


def test_a_sleeping_driver_is_waited_for_and_finds_the_commit(
    table: _Table,
    mine: PostgresParticipant,
    other: PostgresParticipant,
) -> None:
    part = table.prepared(mine, "one")  # and then it sleeps
    started = time.monotonic()
    assert other.commit(part, deadline_s=60, is_own=False).known is Known.COMMITTED
    assert time.monotonic() - started < 30
    assert mine.commit(part, deadline_s=5, is_own=True).known is Known.COMMITTED
    assert table.read() == ["one"]


def test_two_processes_that_commit_at_once_write_once(
    table: _Table, mine: PostgresParticipant, other: PostgresParticipant
) -> None:
    part = table.counted(mine, *map(str, range(500)))
    start = threading.Barrier(2)
    fates = []

    def commit(participant: PostgresParticipant) -> None:
        start.wait()
        fates.append(participant.commit(part, deadline_s=10, is_own=False).known)

    threads = [threading.Thread(target=commit, args=(one,)) for one in (mine, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert fates == [Known.COMMITTED, Known.COMMITTED]
    assert len(table.read()) == 500


def test_an_abort_fences_a_driver_that_sleeps_in_its_prepared_transaction(
    table: _Table,
    mine: PostgresParticipant,
    other: PostgresParticipant,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Longer than the staging table is waited for: only the row in eos_epochs is the fence.
    monkeypatch.setattr("eos.postgres._target_table._IDLE_S", 4)
    part = table.prepared(mine, "one")
    assert other.abort(part, deadline_s=60, is_own=False).known is Known.ABORTED
    assert mine.commit(part, deadline_s=5, is_own=True).known is Known.ABORTED
    assert table.read() == []


def test_a_decision_to_abort_is_refused_if_the_sleeping_driver_commits_meanwhile(
    table: _Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The server must not end the driver's session before it wakes.
    monkeypatch.setattr("eos.postgres._target_table._IDLE_S", 30)
    log, driver = CommitLog.open(tmp_path / "log", table.sink_id), table.participant()
    claimed = Claim(log, Participants(log, [driver]), deadline_s=20).ensure()
    begun = table.begin(driver)
    opened = LogRecord.opened(
        claimed, query_id=BATCH, epoch="a", attempt=1, opened_at=datetime.now(UTC),
        planned_at=None, participants=(begun,),
    )  # fmt: skip
    opened = log.append(opened)
    part = driver.prepare(RECORD, driver.count(begun, table.write(begun, ["one"])))
    prepared = log.append(opened.advance(State.PREPARED, claim=claimed, participants=[part]))
    wakes = threading.Timer(0.3, driver.commit, [part], {"deadline_s": 20, "is_own": True})
    wakes.start()
    log = CommitLog.open(tmp_path / "log", table.sink_id)
    recovery = Claim(log, Participants(log, [table.participant()]), deadline_s=60)
    with pytest.raises(InDoubt, match="was committed meanwhile"):
        recovery.decide(prepared, State.ABORTED, Reason(ReasonKind.DECIDED, "by a person"))
    wakes.join()
    newest = log.history.newest(BATCH, "a")
    assert newest is not None
    assert newest.state is State.PREPARED
    assert table.read() == ["one"]


def test_an_attempt_that_was_never_decided_is_aborted_in_a_database_that_lost_it(
    table: _Table, mine: PostgresParticipant
) -> None:
    begun, counted = table.begin(mine), table.counted(mine, "one")
    table.shop.execute("DROP TABLE eos_epochs")
    assert mine.abort(begun, deadline_s=1, is_own=False).known is Known.ABORTED
    assert mine.abort(counted, deadline_s=1, is_own=False).known is Known.UNKNOWN


def test_a_commit_while_it_is_asked_for_is_seen(
    table: _Table, mine: PostgresParticipant, other: PostgresParticipant
) -> None:
    part = table.counted(mine, "one")
    asked: list[str] = []

    def committed_before_the_second(question: Callable[..., Any]) -> Callable[..., Any]:
        def ask(*arguments: Any) -> Any:
            asked.append(question.__name__)
            if len(asked) == 2:
                other.commit(part, deadline_s=5, is_own=False)
                other.after_end(RECORD, part, is_last=True)
            return question(*arguments)

        return ask

    for name in ("is_staged", "endings"):
        question = getattr(mine.table, name)
        setattr(mine.table, name, committed_before_the_second(question))
    assert mine.outcome(part, timeout_s=5).known is Known.COMMITTED
    assert len(asked) == 2


def test_an_attempt_is_not_called_aborted_while_its_rows_are_staged(
    table: _Table, mine: PostgresParticipant
) -> None:
    part = table.counted(mine, "one")
    assert mine.outcome(part, timeout_s=5).known is Known.UNKNOWN
    table.shop.execute(f"DROP TABLE {part.staging}")
    assert mine.outcome(part, timeout_s=5).known is Known.ABORTED
    assert mine.commit(part, deadline_s=5, is_own=False).known is Known.ABORTED


def test_lost_staged_rows_are_not_committed_in_part(
    table: _Table, mine: PostgresParticipant
) -> None:
    part = table.counted(mine, "one", "two")
    table.shop.execute(f"DELETE FROM {part.staging} WHERE c0 = 'one'")
    with pytest.raises(Retriable, match="are gone"):
        mine.prepare(RECORD, part)
    assert mine.commit(part, deadline_s=5, is_own=False).known is Known.ABORTED
    assert table.read() == []


def test_rows_are_durable_whatever_the_roles_settings_are(table: _Table) -> None:
    """With synchronous_commit off a server that dies would lose what it has confirmed."""
    database = Database(f"{table.shop.conninfo}&options=-c%20synchronous_commit%3Doff")
    participant = PostgresParticipant("contract", database, *table.claimed()._names)
    claim = participant.claimed(History("contract"), "a" * 8)
    participant.attach(claim, History("contract"))
    table.prepared(participant, "one")
    assert participant._open is not None
    assert participant._open.execute("SHOW synchronous_commit").fetchone() == ("on",)
    participant.close()
    with database.connect("a task") as task, task.transaction():
        assert task.execute("SHOW synchronous_commit").fetchone() == ("off",)
        task.execute(TEXT_SETTINGS)
        assert task.execute("SHOW synchronous_commit").fetchone() == ("on",)


def test_another_database_proves_nothing(table: _Table, mine: PostgresParticipant) -> None:
    part = table.counted(mine, "one")
    table.shop.execute("DROP TABLE eos_epochs")
    for _ in range(2):
        assert mine.outcome(part, timeout_s=5).known is Known.UNKNOWN
        assert mine.abort(part, deadline_s=0, is_own=False).known is Known.UNKNOWN
        table.shop.execute(f"DROP TABLE IF EXISTS {part.staging}")


def test_a_database_without_the_last_commit_is_an_older_copy(
    table: _Table, mine: PostgresParticipant
) -> None:
    part = table.prepared(mine, "one")
    mine.commit(part, deadline_s=5, is_own=True)
    table.shop.execute("DELETE FROM eos_epochs WHERE version = 1")
    with pytest.raises(NewCluster, match="no longer there"):
        table.begin(mine)


def test_a_log_that_ends_before_a_commit_is_an_older_copy(
    table: _Table, mine: PostgresParticipant
) -> None:
    mine.commit(table.prepared(mine, "one"), deadline_s=5, is_own=True)
    late = table.claimed()
    found = late.newer_commit(History("contract"), timeout_s=5)
    late.close()
    assert found is not None
    assert "version 1" in found


def test_a_version_of_another_attempt_is_not_mistaken_for_this_one(
    table: _Table, mine: PostgresParticipant, other: PostgresParticipant
) -> None:
    theirs = table.prepared(mine, "one")
    mine.commit(theirs, deadline_s=5, is_own=True)
    part = table.counted(other, "two")  # version 1, too, by an older copy of the log
    assert part.version == theirs.version
    fate = other.commit(part, deadline_s=0, is_own=False)
    assert fate.known is Known.UNKNOWN
    assert "older copy" in fate.why
    assert other.abort(part, deadline_s=0, is_own=False).known is Known.UNKNOWN
    assert table.read() == ["one"]


def test_a_version_older_than_the_ledger_is_unknown(
    table: _Table, mine: PostgresParticipant, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("_target_table", "participant"):
        monkeypatch.setattr(f"eos.postgres.{module}.KEPT", 2)
    first = table.prepared(mine, "first")
    mine.commit(first, deadline_s=5, is_own=True)
    for n in range(4):
        mine.commit(table.prepared(mine, f"later {n}"), deadline_s=5, is_own=True)
    assert table.shop.execute("SELECT min(version) FROM eos_epochs WHERE version > 0") == [(4,)]
    assert mine.outcome(first, timeout_s=5).known is Known.UNKNOWN


def test_broken_constraints_are_found_before_the_decision(
    table: _Table, mine: PostgresParticipant
) -> None:
    table.shop.execute("ALTER TABLE words ADD CONSTRAINT short CHECK (length(word) < 5)")
    part = table.counted(mine, "secret-word")
    with pytest.raises(InputError, match="'short'") as failed:
        mine.prepare(RECORD, part)
    assert "secret" not in str(failed.value)
    assert mine.abort(part, deadline_s=5, is_own=True).known is Known.ABORTED
    assert table.shop.staging_tables() == []


def test_deferred_constraints_are_found_before_the_decision(
    table: _Table, mine: PostgresParticipant
) -> None:
    table.shop.execute(
        "ALTER TABLE words ADD CONSTRAINT once UNIQUE (word) DEFERRABLE INITIALLY DEFERRED"
    )
    with pytest.raises(InputError, match="'once'"):
        table.prepared(mine, "one", "one")


def test_a_constraint_made_after_the_decision_says_what_to_do(
    table: _Table, mine: PostgresParticipant, other: PostgresParticipant
) -> None:
    part = table.counted(mine, "one")
    table.shop.execute("ALTER TABLE words ADD CONSTRAINT none CHECK (word = '')")
    fate = other.commit(part, deadline_s=0, is_own=False)
    assert fate.known is Known.UNKNOWN
    assert "table was changed" in fate.why
    table.shop.execute("ALTER TABLE words DROP CONSTRAINT none")
    assert other.commit(part, deadline_s=5, is_own=False).known is Known.COMMITTED


def test_staging_tables_of_dead_drivers_are_dropped(
    table: _Table, mine: PostgresParticipant, other: PostgresParticipant
) -> None:
    table.counted(mine, "one")
    elsewhere = table.claimed("b" * 8)
    kept = table.counted(elsewhere, "two")
    other.ready(History("contract"))
    elsewhere.close()
    assert table.shop.staging_tables() == [kept.staging]


def test_a_late_task_does_not_hold_up_the_next_epoch(
    table: _Table, mine: PostgresParticipant
) -> None:
    part = table.prepared(mine, "one")
    with psycopg.connect(table.shop.conninfo) as late:
        late.execute(f"INSERT INTO {table.shop.schema}.{part.staging} VALUES (77, 'late')")
        assert mine.commit(part, deadline_s=5, is_own=True).known is Known.COMMITTED
        mine.after_end(RECORD, part, is_last=True)
        assert table.shop.staging_tables() == [part.staging]
    mine.ready(History("contract"))
    assert table.shop.staging_tables() == []
    assert table.read() == ["one"]


def test_a_connection_that_the_server_closed_is_opened_again(
    table: _Table, mine: PostgresParticipant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eos.postgres.participant._RESTED_S", 0)
    assert mine._open is not None
    pid = mine._open.info.backend_pid
    table.shop.execute(f"SELECT pg_terminate_backend({pid})")
    part = table.prepared(mine, "one")
    assert mine.commit(part, deadline_s=5, is_own=True).known is Known.COMMITTED


def test_the_part_holds_no_login(shop: Shop) -> None:
    database = Database("postgresql://writer:hunter2@db.example.com:6543/shop?sslmode=disable")
    participant = PostgresParticipant("s", database, "public", "orders", "public")
    part = participant.claimed(History("s"), "log")
    assert "hunter2" not in repr(part) + repr(database) + str(part.payload())
    assert "writer" not in str(part.payload())
    for place in ("host=a password=b", "password = b", "dbname='a b' sslpassword='c'"):
        with pytest.raises(ValueError, match="password"):
            replace(part, place=place).check(Stage.CLAIMED)
    for given in ("host=password.example.com", "dbname=password", r"dbname='\'a password=b'"):
        replace(part, place=Database(given).place).check(Stage.CLAIMED)
