"""Direct commits: the same for every reader, and they never overwrite another commit."""

from __future__ import annotations

import errno
import json
import os
import resource
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Field, TableFeatures
from deltalake.schema import PrimitiveType

from eos.commit_log import CommitLog
from eos.commit_log import _log_table as table_module
from eos.commit_log import _own_commit as own_commit
from eos.commit_log._compaction import compact
from eos.commit_log._log_table import LogTable
from eos.commit_log._own_commit import STAGED
from eos.commit_log.corruption import POINTER
from eos.commit_log.location import LOG_FOLDER, Location
from eos.errors import CommitLogError, Fenced, Retriable
from eos.protocol import State
from tests.protocol.epochs import FIGURES, claim, committed_epoch, opened, step


@pytest.fixture
def ways(monkeypatch):
    """Records for each commit whether Delta did it, and when Delta was asked for the version."""
    seen: list[str] = []
    look = LogTable._check_position

    def looking(table, record):
        seen.append("look")
        look(table, record)

    monkeypatch.setattr(LogTable, "_check_position", looking)

    def noting(name, commit):
        def call(*args, **options):
            result = commit(*args, **options)
            seen.append(name if result is not False else "taken")
            return result

        return call

    by_delta = noting("delta", table_module.write_deltalake)
    monkeypatch.setattr(table_module, "write_deltalake", by_delta)
    monkeypatch.setattr(own_commit, "commit", noting("own", own_commit.commit))
    return seen


def prepared_by(root, drafts):
    """Of the third of ``drafts``: its commit's actions, its file's schema, its record."""
    log = CommitLog.open(root, "orders")
    for draft in drafts:
        log.append(draft)
    table = root / "orders"
    text = (table / "_delta_log" / f"{3:020}.json").read_text()
    found = {
        kind: action for line in text.splitlines() for kind, action in json.loads(line).items()
    }
    return found, pq.read_schema(table / found["add"]["path"]), log.records()[-1]


def test_a_direct_commit_equals_deltas_own(root, monkeypatch):
    claimed = claim()
    first = opened(claimed)
    drafts = [claimed, first, step(first, State.PREPARED, claimed, partitions=FIGURES)]
    own, schema, record = prepared_by(root / "own", drafts)
    monkeypatch.setattr(table_module, "_FRESH_S", -1.0)
    its, its_schema, its_record = prepared_by(root / "delta's", drafts)
    assert own["commitInfo"]["engineInfo"] == "eos"
    assert its["commitInfo"]["engineInfo"].startswith("delta-rs")
    assert schema == its_schema
    assert record.equals_except_time(its_record)
    assert own["txn"] == its["txn"] == {"appId": "eos/orders", "version": 3}
    for name in ("operation", "operationParameters"):
        assert own["commitInfo"][name] == its["commitInfo"][name]
    assert json.loads(own["add"].pop("stats")) == json.loads(its["add"].pop("stats"))
    for name, value in own["add"].items():
        assert type(value) is type(its["add"][name])
        if name not in ("path", "size", "modificationTime"):
            assert value == its["add"][name]
    assert all(its["add"][name] is None for name in its["add"].keys() - own["add"].keys())


def test_the_first_append_of_a_handle_and_one_after_a_pause_look_at_the_table(
    root, ways, monkeypatch
):
    log = CommitLog.open(root, "orders")
    claimed = log.append(claim())
    first = log.append(opened(claimed))
    assert ways == ["look", "own", "own"]
    now = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: now() + 6)
    log.append(step(first, State.PREPARED, claimed))
    assert ways == ["look", "own", "own", "look", "own"]


def test_an_unmoved_log_is_not_read_again_and_a_moved_one_is(root, log, monkeypatch):
    last = log.append(opened(log.history.last_claim, "2"))
    reads = []
    read = LogTable.read
    monkeypatch.setattr(LogTable, "read", lambda self: reads.append(1) or read(self))
    log.refresh_if_moved()
    assert not reads
    other = CommitLog.open(root, "orders")
    taken = other.append(claim("run-2"))
    assert taken.seq == last.seq + 1
    reads.clear()
    log.refresh_if_moved()
    assert reads
    assert log.is_fenced
    assert log.history.last == taken


def set_a_property(root):
    properties = {"delta.logRetentionDuration": "interval 3 minutes"}
    DeltaTable(root / "orders").alter.set_table_properties(properties)


def compacted(root):
    compact(Location(root, "orders"), "orders")


def add_a_column(root):
    field = Field("note", PrimitiveType("string"), nullable=True)
    DeltaTable(root / "orders").alter.add_columns([field])


@pytest.mark.parametrize(
    ("other", "tried"),
    [
        (set_a_property, ["taken", "look", "look"]),
        (add_a_column, ["taken", "look", "look"]),
        (compacted, ["look"]),
    ],
)
def test_after_a_foreign_commit_the_table_is_read(root, log, ways, other, tried):
    other(root)
    first = log.append(opened(log.history.last_claim, "2"))
    assert ways == [*tried, "own"]
    assert log.append(step(first, State.PREPARED, log.history.last_claim)).seq == 9
    assert ways == [*tried, "own", "own"]
    assert len(log.records()) == 9
    compacted(root)
    assert len(log.records()) == 9


def test_a_table_with_a_newer_protocol_is_left_to_delta(root, log, ways):
    feature = TableFeatures.AppendOnly
    DeltaTable(root / "orders").alter.add_feature(feature, allow_protocol_versions_increase=True)
    for record in committed_epoch(log.history.last_claim, "2"):
        log.append(record)
    assert ways == ["taken", "look", "look", *["delta", "look"] * 2, "delta"]


def clean_up(root):
    """Make all commits after the checkpoint old, and compact."""
    for path in (root / "orders" / "_delta_log").glob("*.json"):
        os.utime(path, (time.time() - 3600,) * 2)
    compact(Location(root, "orders"), "orders")


def lose_the_pointer(root):
    (root / "orders" / POINTER).unlink()


@pytest.mark.parametrize("lose", [lambda root: None, lose_the_pointer], ids=["", "no pointer"])
def test_the_name_of_a_cleaned_up_commit_is_not_used_again(root, log, monkeypatch, lose):
    link = os.link

    def overtaken(source, target):
        """Just before: another driver claims the sink, and its commit is cleaned up."""
        monkeypatch.setattr(os, "link", link)
        CommitLog.open(root, "orders").append(claim("run-2"))
        clean_up(root)
        lose(root)
        assert not target.exists()
        link(source, target)

    monkeypatch.setattr(os, "link", overtaken)
    with pytest.raises(Fenced, match="run-2"):
        log.append(opened(log.history.last_claim, "2"))
    states = [record.state for record in CommitLog.open(root, "orders").records()]
    assert states[-1] is State.CLAIMED
    assert len(states) == 8


def test_a_checkpoint_after_a_direct_commit_loses_nothing(root, log, monkeypatch):
    link = os.link

    def followed(source, target):
        """Just after: it is committed, and compaction runs before the table is read."""
        monkeypatch.setattr(os, "link", link)
        link(source, target)
        clean_up(root)

    monkeypatch.setattr(os, "link", followed)
    first = log.append(opened(log.history.last_claim, "2"))
    assert first.seq == 8
    assert log.append(step(first, State.PREPARED, log.history.last_claim)).seq == 9
    assert len(log.records()) == 9


@pytest.mark.parametrize("problem", [errno.EPERM, errno.EIO])
def test_without_hard_links_delta_commits_or_says_why_not(root, log, ways, monkeypatch, problem):
    def refused(source, target):
        raise OSError(problem, os.strerror(problem))

    monkeypatch.setattr(os, "link", refused)
    assert log.append(opened(log.history.last_claim, "2")).seq == 8
    assert ways == ["taken", "look", "taken", "delta"]


def test_a_link_whose_reply_was_lost_is_found(root, log, ways, monkeypatch):
    link = os.link

    def lost(source, target):
        monkeypatch.setattr(os, "link", link)
        link(source, target)
        raise FileExistsError(errno.EEXIST, "File exists")

    monkeypatch.setattr(os, "link", lost)
    assert log.append(opened(log.history.last_claim, "2")).seq == 8
    assert ways == ["taken", "look"]
    assert len(log.records()) == 8


def test_a_full_disk_in_a_direct_commit_is_a_clear_error_and_the_log_continues(log, ways):
    draft = opened(log.history.last_claim, "2")
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, unlimited[1]))
    try:
        with pytest.raises(CommitLogError, match=r"not written: .*File too large"):
            log.append(draft)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
    assert ways == []
    assert log.append(draft).seq == 8


def test_staged_files_of_killed_processes_are_deleted_after_their_retention_and_not_before(
    root, log
):
    folder = root / "orders"
    (folder / f"old{STAGED}").touch()
    os.utime(folder / f"old{STAGED}", (time.time() - 3600,) * 2)
    (folder / f"new{STAGED}").touch()
    compact(Location(root, "orders"), "orders")
    assert [path.name for path in folder.glob(f"*{STAGED}")] == [f"new{STAGED}"]
    assert len(log.records()) == 7
    assert len(DeltaTable(folder).file_uris()) == 1


def test_a_commit_leaves_no_staged_file(root, log):
    log.append(opened(log.history.last_claim, "2"))
    assert list((root / "orders").glob(f"*{STAGED}")) == []


def test_many_appends_need_no_checkpoint_and_a_new_handle_sees_them_all(root, log):
    for number in range(2, 22):
        for record in committed_epoch(log.history.last_claim, str(number)):
            log.append(record)
    assert list((root / "orders" / "_delta_log").glob("*.checkpoint.parquet")) == []
    assert CommitLog.open(root, "orders").records() == log.records()


@pytest.fixture
def flushed(monkeypatch):
    """Inodes of the files and folders that were flushed, in order."""
    seen: list[int] = []
    fsync = os.fsync

    def noting(descriptor):
        fsync(descriptor)
        seen.append(os.fstat(descriptor).st_ino)

    monkeypatch.setattr(os, "fsync", noting)
    return seen


def test_a_commit_gets_its_name_when_all_of_it_is_on_the_disk(root, log, flushed, monkeypatch):
    folder, link, before = root / "orders", os.link, []

    def named(source, target):
        before.extend([os.stat(source).st_ino, *flushed])
        link(source, target)

    monkeypatch.setattr(os, "link", named)
    log.append(opened(log.history.last_claim, "2"))
    commit = folder / LOG_FOLDER / f"{8:020}.json"
    actions = [json.loads(line) for line in commit.read_text().splitlines()]
    (data,) = [action["add"]["path"] for action in actions if "add" in action]
    source, *before_the_link = before
    needed = [(folder / data).stat().st_ino, folder.stat().st_ino, source]
    assert before_the_link == needed
    assert flushed == [*needed, (folder / LOG_FOLDER).stat().st_ino]


def test_a_file_that_the_disk_refuses_gets_no_name(root, log, monkeypatch):
    fsync = os.fsync

    def refused(descriptor):
        monkeypatch.setattr(os, "fsync", fsync)  # Linux reports such an error only once
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    draft = opened(log.history.last_claim, "2")
    monkeypatch.setattr(os, "fsync", refused)
    with pytest.raises(CommitLogError, match=r"not written: .*Input/output error"):
        log.append(draft)
    assert not (root / "orders" / LOG_FOLDER / f"{8:020}.json").exists()
    assert log.append(draft).seq == 8


@pytest.mark.parametrize("when", ["written", "flushed"])
def test_a_process_whose_file_was_deleted_in_its_sleep_reads_again(log, ways, monkeypatch, when):
    rename, write = Path.rename, Path.write_bytes

    def taken_for_a_dead_ones(path):
        monkeypatch.setattr(Path, "rename", rename)
        monkeypatch.setattr(Path, "write_bytes", write)
        path.unlink()

    def slept_before_the_flush(path, content):
        write(path, content)
        taken_for_a_dead_ones(path)

    def slept_before_the_name(path, target):
        taken_for_a_dead_ones(path)
        return rename(path, target)

    if when == "written":
        monkeypatch.setattr(Path, "write_bytes", slept_before_the_flush)
    else:
        monkeypatch.setattr(Path, "rename", slept_before_the_name)
    assert log.append(opened(log.history.last_claim, "2")).seq == 8
    assert ways == ["taken", "look", "own"]


def test_another_writers_record_is_flushed_before_the_next_append(root, log, monkeypatch, flushed):
    with monkeypatch.context() as killed:
        killed.setattr(os, "fsync", lambda descriptor: None)
        log.append(opened(log.history.last_claim, "2"))
    newest = (root / "orders" / LOG_FOLDER / f"{8:020}.json").stat().st_ino
    CommitLog.open_read_only(root, "orders")
    assert flushed == []
    CommitLog.open(root, "orders")
    assert newest in flushed
    assert {(root / "orders").stat().st_ino, (root / "orders" / LOG_FOLDER).stat().st_ino} <= set(
        flushed
    )


def test_flushed_files_are_not_flushed_at_each_read(root, log, flushed):
    log.refresh()
    assert len(flushed) == 7 + 7 + 2  # data files, commits, folders
    flushed.clear()
    CommitLog.open(root, "orders").append(claim("run-2"))
    flushed.clear()
    log.refresh()
    assert len(flushed) == 1 + 1 + 2


def test_rows_that_another_tool_deletes_stop_a_running_driver(root, log, way):
    log.append(opened(log.history.last_claim, "2"))
    DeltaTable(root / "orders").restore(4)
    with pytest.raises(CommitLogError, match="rolled back or deleted"):
        log.append(opened(log.history.last_claim, "key", query_id="batch"))


def test_endless_foreign_writes_are_a_retriable_error(root, log, way, monkeypatch):
    look = LogTable._check_position

    def disturbed(table, record):
        set_a_property(root)
        look(table, record)

    draft = opened(log.history.last_claim, "2")
    with monkeypatch.context() as patched:
        patched.setattr(LogTable, "_check_position", disturbed)
        set_a_property(root)
        with pytest.raises(Retriable, match="another process has written version"):
            log.append(draft)
    assert log.append(draft).seq == 8


def test_a_commit_emptied_by_a_power_failure_is_not_overwritten(root, log, way):
    CommitLog.open(root, "orders").append(claim("run-2"))
    (root / "orders" / LOG_FOLDER / f"{8:020}.json").write_bytes(b"")
    with pytest.raises(CommitLogError, match=r"00008\.json is empty"):
        log.append(opened(log.history.last_claim, "2"))


def test_a_refusal_of_the_table_is_not_called_temporary(root, log):
    (root / "orders" / LOG_FOLDER / f"{8:020}.json").write_text(
        json.dumps(
            {
                "protocol": {
                    "minReaderVersion": 1,
                    "minWriterVersion": 7,
                    "writerFeatures": ["rowTracking", "domainMetadata"],
                }
            }
        )
    )
    with pytest.raises(CommitLogError, match="take the change back") as caught:
        log.append(opened(log.history.last_claim, "2"))
    assert not isinstance(caught.value, Retriable)
