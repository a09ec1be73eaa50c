"""The commit: no row is there twice, regardless of events between staging and commit."""

from __future__ import annotations

import os
import shutil
import threading

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from eos import _storage as storage
from eos.delta.target_table import TargetTable
from eos.errors import (
    CommitUnconfirmed,
    ConfigurationError,
    EosError,
    Fatal,
    Fenced,
    InputError,
    Retriable,
)
from tests.delta.tables import SCHEMA, appended, batch, commit, ids, made, numbered, rows, staged

APP = "eos/orders"
WIDE = pa.schema([*SCHEMA, ("more", pa.int32())])


@pytest.fixture
def table(tmp_path):
    return made(tmp_path / "a table")


def delta(table) -> DeltaTable:
    return DeltaTable(table.folder.uri)


def test_committed_rows_are_read_and_the_version_is_known(table):
    assert table.committed_version(APP) is None
    appended(table, numbered(0, 3))
    assert ids(table) == [0, 1, 2]
    assert table.committed_version(APP) == 1
    assert table.committed_version("eos/other") is None
    assert TargetTable(table.folder.uri).committed_version(APP) == 1


def test_statistics_are_in_the_table(table):
    appended(table, numbered(5, 3))
    (found,) = pa.table(delta(table).get_add_actions(flatten=True)).to_pylist()
    assert (found["num_records"], found["min.id"], found["max.id"]) == (3, 5, 7)


def test_a_second_commit_of_the_same_version_adds_nothing(table):
    files, schema = staged(table, numbered(0, 2))
    commit(table, files, 1, schema)
    before = delta(table).version()
    other, _ = staged(table, numbered(5, 2))
    commit(TargetTable(table.folder.uri), files, 1, schema)
    commit(TargetTable(table.folder.uri), other, 1, schema)
    assert delta(table).version() == before
    assert ids(table) == [0, 1]


@pytest.mark.parametrize("between", ["nothing", "appends", "a checkpoint"])
def test_of_two_handles_at_the_same_version_one_commits(table, between):
    """Both have checked and found nothing: only Delta's own check keeps them apart."""
    files, schema = staged(table, numbered(0, 2))
    copy, _ = staged(table, numbered(0, 2))
    late = delta(table)
    commit(table, files, 1, schema)
    if between == "appends":
        for number in range(20):
            write_deltalake(
                table.folder.uri, pa.Table.from_batches([numbered(100 + number, 1)]), mode="append"
            )
    if between == "a checkpoint":
        delta(table).create_checkpoint()
    with (
        pytest.raises(CommitUnconfirmed, match=r"[Cc]oncurrent transaction"),
        table._committing(APP, 1),
    ):
        table._append(late, copy, {APP: 1})
    assert [number for number in ids(table) if number < 100] == [0, 1]


def test_of_many_concurrent_commits_one_succeeds_and_all_find_out(table):
    staged_files = [staged(table, numbered(0, 2)) for _ in range(4)]
    barrier = threading.Barrier(4)
    outcomes = []

    def work(files, schema):
        mine = TargetTable(table.folder.uri)
        barrier.wait()
        try:
            commit(mine, files, 1, schema)
            outcomes.append("done")
        except CommitUnconfirmed:
            outcomes.append("unconfirmed")
        assert mine.committed_version(APP) == 1

    threads = [threading.Thread(target=work, args=each) for each in staged_files]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(outcomes) == 4
    assert "done" in outcomes
    assert ids(table) == [0, 1]


def test_a_commit_whose_answer_is_lost_is_found_and_not_repeated(table, monkeypatch):
    files, schema = staged(table, numbered(0, 2))
    real = TargetTable._append

    def lost(self, *args):
        real(self, *args)
        raise OSError("the answer was lost")

    monkeypatch.setattr(TargetTable, "_append", lost)
    with pytest.raises(CommitUnconfirmed, match="the answer was lost"):
        commit(table, files, 1, schema)
    monkeypatch.undo()
    assert table.committed_version(APP) == 1
    commit(table, files, 1, schema)
    assert ids(table) == [0, 1]


def test_a_commit_after_a_later_version_is_fenced(table):
    appended(table, numbered(0, 1), version=5)
    files, schema = staged(table, numbered(1, 1))
    with pytest.raises(Fenced, match="is at version 5"):
        commit(table, files, 4, schema)
    assert ids(table) == [0]


def test_other_sinks_append_to_the_same_table(table):
    files, schema = staged(table, numbered(0, 1))
    others, _ = staged(table, numbered(1, 1))
    commit(table, files, 1, schema)
    commit(table, others, 1, schema, app_id="eos/other")
    assert ids(table) == [0, 1]


def test_a_commit_without_files_records_the_version(table):
    commit(table, [], 3)
    assert table.committed_version(APP) == 3


def test_the_identifier_has_a_time_so_that_spark_keeps_it(table):
    appended(table, numbered(0, 1))
    log = (table.folder.local / "_delta_log" / f"{1:020}.json").read_text()
    assert '"lastUpdated":1' in log


def test_a_panic_becomes_an_error(table, monkeypatch):
    class PanicException(BaseException):
        pass

    def panic(*args):
        raise PanicException("oh")

    files, schema = staged(table, numbered(0, 1))
    monkeypatch.setattr(TargetTable, "_append", panic)
    with pytest.raises(CommitUnconfirmed, match="panicked"):
        commit(table, files, 1, schema)


# --- what may happen between staging and commit --------------------------------------------------


def test_missing_files_are_never_committed(table):
    files, schema = staged(table, numbered(0, 1), numbered(1, 1), file_bytes=1)
    assert len(files) == 2
    (table.folder.local / files[1].path).unlink()
    assert table.missing(files) == [files[1]]
    with pytest.raises(Fatal, match="1 of 2 staged files are missing"):
        commit(table, files, 1, schema)
    assert table.committed_version(APP) is None


def test_a_truncated_file_counts_as_missing(table):
    files, _ = staged(table, numbered(0, 1))
    (table.folder.local / files[0].path).write_bytes(b"PAR1")
    assert table.missing(files) == list(files)


def test_a_vacuum_deletes_staged_files_only_without_retention(table):
    appended(table, numbered(0, 1))
    files, _ = staged(table, numbered(1, 1))
    delta(table).vacuum(dry_run=False)
    delta(table).vacuum(dry_run=False, full=True)
    unlimited = {"retention_hours": 0, "enforce_retention_duration": False, "dry_run": False}
    delta(table).vacuum(**unlimited)
    assert table.missing(files) == []
    delta(table).vacuum(**unlimited, full=True)
    assert table.missing(files) == list(files)


def test_a_vacuum_deletes_files_that_the_table_has_removed(table):
    files = appended(table, numbered(0, 1))
    delta(table).delete()
    delta(table).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    assert table.missing(files) == list(files)


@pytest.mark.parametrize(
    ("change", "before"),
    [
        (lambda found: found.optimize.compact(), 2),
        (lambda found: found.delete(), 0),
        (lambda found: found.restore(1), 1),
        (lambda found: write_deltalake(found, numbered(50, 3), mode="overwrite"), 3),
        (lambda found: found.alter.set_table_properties({"delta.appendOnly": "false"}), 2),
        (lambda found: found.create_checkpoint(), 2),
    ],
    ids=["compaction", "delete", "restore", "overwrite", "properties", "checkpoint"],
)
def test_other_writers_changes_do_not_affect_an_append(table, change, before):
    appended(table, numbered(0, 1))
    appended(table, numbered(1, 1), version=2)
    files, schema = staged(table, numbered(10, 2))
    change(delta(table))
    commit(table, files, 3, schema)
    found = ids(table)
    assert len(found) == before + 2
    assert {10, 11} <= set(found)
    assert table.committed_version(APP) == 3


def test_after_a_restore_to_an_older_version_the_commit_is_not_repeated(table):
    """A person has removed the rows: they are not written again."""
    files, schema = staged(table, numbered(0, 1))
    commit(table, files, 1, schema)
    delta(table).restore(0)
    assert table.committed_version(APP) == 1
    commit(table, files, 1, schema)
    assert ids(table) == []


def test_a_recreated_table_gets_no_rows(table):
    files, schema = staged(table, numbered(0, 1))
    old = table.table_id
    shutil.rmtree(table.folder.local / "_delta_log")
    table.create(SCHEMA)
    assert not table.is_table(old)
    with pytest.raises(Fatal, match="is another one"):
        table.commit(files, APP, 1, table_id=old, schema=schema)
    assert ids(table) == []


def test_a_dropped_table_is_a_clear_error(table):
    files, schema = staged(table, numbered(0, 1))
    old = table.table_id
    shutil.rmtree(table.folder.local)
    for ask in (
        lambda: table.commit(files, APP, 1, table_id=old, schema=schema),
        lambda: table.committed_version(APP),
        lambda: table.table_id,
    ):
        with pytest.raises(ConfigurationError, match="does not exist"):
            ask()
    assert table.missing(files) == list(files)


def test_a_new_requirement_is_found_by_the_commit_too(table):
    files, schema = staged(table, numbered(0, 1))
    DeltaTable(table.folder.uri).alter.add_constraint({"positive": "id > 0"})
    with pytest.raises(Fatal, match="check constraint positive"):
        commit(table, files, 1, schema)
    assert ids(table) == []


def test_a_column_whose_type_has_changed_is_refused_before_columns_are_added(table):
    files, schema = staged(table, numbered(0, 1))
    changed = pa.table({"id": ["x"], "name": ["y"]})
    write_deltalake(table.folder.uri, changed, mode="overwrite", schema_mode="overwrite")
    with pytest.raises(InputError, match="id is string in the table, and int64 here"):
        commit(table, files, 1, schema)
    assert table.committed_version(APP) is None


def test_a_column_that_was_widened_is_refused_because_the_files_are_written(table):
    narrow = pa.schema([("id", pa.int32()), ("name", pa.string())])
    small = made(table.folder.local.parent / "small", narrow)
    files, schema = staged(small, batch({"id": 1}, schema=narrow))
    wider = pa.Table.from_batches([numbered(0, 1)])
    write_deltalake(small.folder.uri, wider, mode="overwrite", schema_mode="overwrite")
    with pytest.raises(InputError, match="id is now int64, but int32"):
        commit(small, files, 1, schema)


def test_a_dropped_column_is_not_added_again(table):
    files, schema = staged(table, numbered(0, 1))
    write_deltalake(
        table.folder.uri, pa.table({"id": [1]}), mode="overwrite", schema_mode="overwrite"
    )
    with pytest.raises(InputError, match="lacks name"):
        commit(table, files, 1, schema)


def test_changed_partition_columns_are_refused(table):
    files, schema = staged(table, numbered(0, 1))
    old = table.table_id
    write_deltalake(
        table.folder.uri,
        pa.Table.from_batches([numbered(0, 1)]),
        mode="overwrite",
        schema_mode="overwrite",
        partition_by=["name"],
    )
    with pytest.raises(Fatal, match="partitioned by other columns"):
        table.commit(files, APP, 1, table_id=old, schema=schema)


def test_a_column_that_others_added_is_null_in_the_staged_rows(table):
    files, schema = staged(table, numbered(0, 1))
    write_deltalake(
        table.folder.uri, batch({"id": 9, "more": 1}, schema=WIDE), mode="append",
        schema_mode="merge",
    )  # fmt: skip
    commit(table, files, 1, schema)
    assert [row["more"] for row in rows(table)] == [None, 1]


# --- columns -------------------------------------------------------------------------------------


def test_new_columns_are_added_when_asked_for_and_refused_otherwise(table):
    appended(table, numbered(0, 1))
    wide = batch({"id": 1, "name": "x", "more": 7}, schema=WIDE)
    with pytest.raises(InputError, match="lacks more"):
        table.check_schema(WIDE)
    files, schema = staged(table, wide, merge=True)
    assert "more" not in table.schema.names
    with pytest.raises(InputError, match="lacks more"):
        commit(table, files, 2, schema)
    commit(table, files, 2, schema, merge=True)
    assert [row["more"] for row in rows(table)] == [None, 7]
    commit(table, files, 2, schema, merge=True)
    assert ids(table) == [0, 1]


def test_columns_added_before_the_driver_died_do_not_fail_the_commit(table):
    files, schema = staged(table, batch({"id": 1, "more": 7}, schema=WIDE), merge=True)
    table._add_columns(delta(table), schema, True)
    commit(table, files, 1, schema)
    assert [row["more"] for row in rows(table)] == [7]


def test_a_type_that_delta_lacks_is_refused(table):
    with pytest.raises(ConfigurationError, match="Delta has no such columns"):
        table.check_schema(pa.schema([("id", pa.int64()), ("t", pa.time32("s"))]), merge=True)


# --- creating, discarding, durability ------------------------------------------------------------


def test_of_concurrent_creators_one_creates_the_table_and_all_find_it(tmp_path):
    tables = [TargetTable(str(tmp_path / "t")) for _ in range(6)]
    seen = []
    barrier = threading.Barrier(6)

    def work(one):
        barrier.wait()
        one.create(SCHEMA)
        seen.append(one.table_id)

    threads = [threading.Thread(target=work, args=(one,)) for one in tables]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 6
    assert len(set(seen)) == 1
    assert tables[0].exists()


@pytest.mark.parametrize("column", ["nowhere", "b"])
def test_an_unsupported_partition_column_is_refused(tmp_path, column):
    with pytest.raises(ConfigurationError, match=column):
        made(tmp_path / "t", pa.schema([("id", pa.int64()), ("b", pa.binary())]), [column])
    assert not (tmp_path / "t").exists()


def test_a_folder_that_can_not_be_created_is_a_retriable_error(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(Retriable, match="file/t"):
        made(tmp_path / "file" / "t")


def test_discarded_files_are_gone_and_may_be_discarded_again(table):
    files, _ = staged(table, numbered(0, 1), numbered(1, 1), file_bytes=1)
    table.discard(files[:1])
    table.discard(files)
    assert table.missing(files) == list(files)


def test_a_commit_is_flushed_before_it_is_reported(table, monkeypatch):
    files, schema = staged(table, numbered(0, 1))
    log = table.folder.local / "_delta_log"
    synced = []
    monkeypatch.setattr(storage, "_sync_if_present", synced.append)
    commit(table, files, 1, schema)
    assert {log, log / f"{1:020}.json"} <= set(synced)
    synced.clear()
    assert TargetTable(table.folder.uri).committed_version(APP) == 1
    assert {log, log / f"{1:020}.json"} <= set(synced)


def test_a_commit_that_the_disk_does_not_confirm_is_unconfirmed(table, monkeypatch):
    def refuse(path):
        raise storage.NotDurable("no")

    files, schema = staged(table, numbered(0, 1))
    monkeypatch.setattr(storage, "_sync_if_present", refuse)
    with pytest.raises(CommitUnconfirmed):
        commit(table, files, 1, schema)
    with pytest.raises(EosError):
        table.committed_version(APP)


def test_now_and_then_a_checkpoint_is_written(table):
    delta(table).alter.set_table_properties({"delta.checkpointInterval": "3"})
    for version in range(1, 6):
        appended(table, numbered(version, 1), version=version)
        table.checkpoint_when_due()
    log = table.folder.local / "_delta_log"
    found = sorted(path.name for path in log.glob("*.checkpoint.parquet"))
    assert found == [f"{number:020}.checkpoint.parquet" for number in (3, 6)]
    assert table.committed_version(APP) == 5
    assert ids(table) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("cleans", ["true", "false"])
def test_a_table_that_forbids_it_keeps_its_expired_log(table, cleans):
    """For time travel, and for readers of the history."""
    properties = {"delta.checkpointInterval": "4", "delta.enableExpiredLogCleanup": cleans}
    delta(table).alter.set_table_properties(properties)
    for version in range(1, 4):
        appended(table, numbered(version, 1), version=version)
    log = table.folder.local / "_delta_log"
    for path in log.iterdir():
        os.utime(path, (0, 0))
    table.checkpoint_when_due()
    assert (log / f"{0:020}.json").exists() is (cleans == "false")
    assert ids(table) == [1, 2, 3]


def test_a_checkpoint_that_fails_is_a_warning(table, monkeypatch, caplog):
    delta(table).alter.set_table_properties({"delta.checkpointInterval": "1"})
    monkeypatch.setattr(DeltaTable, "create_checkpoint", lambda _: 1 / 0)
    table.checkpoint_when_due()
    assert "no checkpoint" in caplog.text
