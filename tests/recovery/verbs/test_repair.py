"""``log repair``: repairs provable damage, and refuses the rest with the finding."""

from __future__ import annotations

import json
import shutil

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from eos.commit_log import SCHEMA, CommitLog, repair_log, to_row
from eos.commit_log import _compaction as compaction_module
from eos.commit_log._compaction import compact
from eos.commit_log.location import Location
from eos.errors import CommitLogError
from tests.protocol.epochs import at, claim, opened
from tests.support.logs import compact_twice, small_log


@pytest.fixture
def log(root):
    """The log of sink "orders", with seven records."""
    return small_log(root)


def state_of(root):
    files = sorted(path for path in (root / "orders").rglob("*") if path.is_file())
    return {path: path.read_bytes() for path in files}


def lose_checkpoint(root, *, ahead=0):
    """As after a power failure: the pointer was written, the checkpoint was not."""
    folder = root / "orders" / "_delta_log"
    table = DeltaTable(root / "orders")
    table.create_checkpoint()
    (checkpoint,) = folder.glob(f"{table.version():020}.checkpoint.parquet")
    checkpoint.unlink()
    if ahead:
        pointer = json.loads((folder / "_last_checkpoint").read_text())
        pointer["version"] += ahead
        (folder / "_last_checkpoint").write_text(json.dumps(pointer))


def compacted(root, log):
    compact(Location(root, "orders"), "orders", keep_epochs=100)


def cut_checkpoint(root, content=b"PAR1"):
    DeltaTable(root / "orders").create_checkpoint()
    (checkpoint,) = (root / "orders" / "_delta_log").glob("*.checkpoint.parquet")
    checkpoint.write_bytes(content)


def rows_in(root):
    actions = pa.table(DeltaTable(root / "orders").get_add_actions())
    return sum(actions["num_records"].to_pylist())


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_intact_log_needs_no_repair(recovery, root, log, flags):
    before = state_of(root)
    ended = recovery("log", "repair", "orders", "--commit-log", root, "--apply", "--yes", *flags)
    assert ended.code == 0
    assert state_of(root) == before


def test_duplicate_records_of_two_compactions_are_written_once(recovery, root, log):
    compact_twice(root / "orders", lambda: log.append(opened(log.history.last_claim, "2")))
    records, before = log.records(), state_of(root)
    planned = recovery("log", "repair", "orders", "--commit-log", root)
    assert planned.code == 1
    assert "write 7 duplicate records once" in planned.out
    assert state_of(root) == before

    done = recovery("log", "repair", "orders", "--commit-log", root, "--apply", "--yes", "--json")
    assert (done.code, len(done.json["done"])) == (0, 1)
    assert rows_in(root) == 8
    assert log.records() == records
    assert recovery("log", "repair", "orders", "--commit-log", root).code == 0
    log.append(
        opened(log.history.last_claim, "key", query_id="batch")
    )  # the driver is still running


def test_pointer_to_a_missing_checkpoint_is_deleted(recovery, root, log):
    records = log.records()
    lose_checkpoint(root)
    with pytest.raises(CommitLogError, match="eos recovery log repair orders"):
        CommitLog.open(root, "orders")
    before = state_of(root)
    planned = recovery("log", "repair", "orders", "--commit-log", root)
    assert planned.code == 1
    assert "delete _last_checkpoint" in planned.out
    assert state_of(root) == before

    assert recovery("log", "repair", "orders", "--commit-log", root, "--apply", "--yes").code == 0
    assert CommitLog.open(root, "orders").records() == records


@pytest.mark.parametrize("content", [b"", bytes(900), b"PAR1"], ids=["empty", "zeroes", "cut"])
def test_unreadable_checkpoint_is_deleted(recovery, root, log, content):
    records = log.records()
    cut_checkpoint(root, content)
    with pytest.raises(CommitLogError, match="eos recovery log repair orders"):
        CommitLog.open(root, "orders")
    assert recovery("log", "repair", "orders", "--commit-log", root, "--apply", "--yes").code == 0
    assert CommitLog.open(root, "orders").records() == records


@pytest.mark.parametrize("content", [b"", bytes(900)], ids=["empty", "zeroes"])
@pytest.mark.parametrize(
    "commit", [lambda root, log: log.append(opened(log.history.last_claim, "2")), compacted]
)
def test_empty_newest_commit_is_replaced(recovery, root, log, commit, content):
    records = log.records()
    commit(root, log)
    newest = max((root / "orders" / "_delta_log").glob("*.json"))
    for checkpoint in (root / "orders" / "_delta_log").glob("*checkpoint*"):
        checkpoint.unlink()
    newest.write_bytes(content)
    with pytest.raises(CommitLogError, match="eos recovery log repair orders"):
        CommitLog.open(root, "orders")
    before = state_of(root)
    planned = recovery("log", "repair", "orders", "--commit-log", root)
    assert planned.code == 1
    assert newest.name in planned.out
    assert state_of(root) == before

    done = recovery("log", "repair", "orders", "--commit-log", root, "--apply", "--yes", "--json")
    assert (done.code, len(done.json["done"])) == (0, 1)
    log = CommitLog.open(root, "orders")
    assert log.records() == records
    assert log.append(opened(log.history.last_claim, "2")).seq == 8


@pytest.mark.parametrize("lose", [lose_checkpoint, cut_checkpoint])
def test_lost_checkpoint_and_empty_commit_are_repaired_together(recovery, root, log, lose):
    records = log.records()
    lose(root)
    (root / "orders" / "_delta_log" / f"{8:020}.json").write_bytes(b"")
    done = recovery("log", "repair", "orders", "--commit-log", root, "--apply", "--yes", "--json")
    assert (done.code, len(done.json["done"])) == (0, 2)
    assert CommitLog.open(root, "orders").records() == records


def test_several_empty_commits_are_repaired_at_once(recovery, root, log):
    records = log.records()
    for _ in range(3):
        DeltaTable(root / "orders").alter.set_table_properties({"delta.checkpointInterval": "7"})
    for version in (9, 10):  # 8 did reach the disk
        (root / "orders" / "_delta_log" / f"{version:020}.json").write_bytes(b"")
    with pytest.raises(CommitLogError, match="eos recovery log repair orders"):
        CommitLog.open(root, "orders")
    done = recovery("log", "repair", "orders", "--commit-log", root, "--apply", "--yes", "--json")
    assert (done.code, len(done.json["done"])) == (0, 2)
    assert CommitLog.open(root, "orders").records() == records
    assert DeltaTable(root / "orders").version() == 10


def test_second_of_two_repairs_keeps_newer_changes(root, log, monkeypatch):
    """The second one pauses between examining the log and changing it."""
    commit = root / "orders" / "_delta_log" / f"{8:020}.json"
    cut_checkpoint(root)
    commit.write_bytes(b"")
    delete, told, filled = Location.delete, [], []

    def meanwhile(location, name):
        monkeypatch.setattr(Location, "delete", delete)
        repair_log(root, "orders")
        filled.append(commit.read_bytes())
        driver = CommitLog.open(root, "orders")
        told.append(driver.append(opened(driver.history.last_claim, "2")))
        compact(Location(root, "orders"), "orders", keep_epochs=100)
        (root / "orders" / "_delta_log" / f"{7:020}.checkpoint.parquet").write_bytes(
            next((root / "orders" / "_delta_log").glob("*10.checkpoint.parquet")).read_bytes()
        )
        delete(location, name)

    monkeypatch.setattr(Location, "delete", meanwhile)
    repair_log(root, "orders")
    assert CommitLog.open(root, "orders").records()[-1] == told[0]
    assert [commit.read_bytes()] == filled
    assert (root / "orders" / "_delta_log" / f"{7:020}.checkpoint.parquet").exists()


def test_log_without_any_commit_on_disk_is_recreated(recovery, root, log):
    CommitLog.open(root, "other")
    (root / "other" / "_delta_log" / f"{0:020}.json").write_bytes(b"")
    with pytest.raises(CommitLogError, match="eos recovery log repair other"):
        CommitLog.open(root, "other")
    assert recovery("log", "repair", "other", "--commit-log", root, "--apply", "--yes").code == 0
    assert CommitLog.open(root, "other").append(claim(sink_id="other")).seq == 1


def test_duplicates_and_lost_checkpoint_are_repaired_by_one_command(recovery, root, log):
    compact_twice(root / "orders", lambda: log.append(opened(log.history.last_claim, "2")))
    records = log.records()
    lose_checkpoint(root)
    done = recovery("log", "repair", "orders", "--commit-log", root, "--apply", "--yes", "--json")
    assert (done.code, len(done.json["done"])) == (0, 2)
    assert rows_in(root) == 8
    assert CommitLog.open(root, "orders").records() == records


def different_row(root, log):
    compact_twice(root / "orders", lambda: log.append(opened(log.history.last_claim, "2")))
    write_deltalake(
        DeltaTable(root / "orders"),
        pa.Table.from_pylist([to_row(at(claim("run-2"), 8))], schema=SCHEMA),
        mode="append",
        commit_properties=CommitProperties(app_transactions=[Transaction("eos/orders", 8)]),
    )


def lost_row(root, log):
    DeltaTable(root / "orders").delete("seq = 3")


def lost_commit(root, log):
    lose_checkpoint(root)
    (root / "orders" / "_delta_log" / f"{4:020}.json").unlink()


def older_copy(root, log):
    """The pointer is newer than every commit: more than a checkpoint is lost."""
    lose_checkpoint(root, ahead=3)


@pytest.mark.parametrize("damage", [different_row, lost_row, lost_commit, older_copy])
@pytest.mark.parametrize("apply", [(), ("--apply", "--yes")], ids=["plan", "apply"])
def test_unprovable_damage_is_refused_and_left_alone(recovery, root, log, damage, apply):
    damage(root, log)
    before = state_of(root)
    ended = recovery("log", "repair", "orders", "--commit-log", root, *apply, "--json")
    assert ended.code == 1
    (refused,) = ended.json["refused"]
    assert str(root / "orders") in refused
    assert ended.json["steps"] == []
    assert state_of(root) == before


def test_missing_sink_exits_with_64(recovery, root, log):
    assert recovery("log", "repair", "other", "--commit-log", root).code == 64


def test_simultaneous_compaction_is_unknown(recovery, root, log, monkeypatch):
    compact_twice(root / "orders", lambda: log.append(opened(log.history.last_claim, "2")))
    monkeypatch.setattr(compaction_module, "_DOUBTFUL_S", 0.0)
    ended = recovery("log", "repair", "orders", "--commit-log", root, "--apply", "--yes", "--json")
    assert (ended.code, len(ended.json["unknown"])) == (2, 1)


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_compact_continues_with_other_logs_after_a_failure(recovery, root, log, monkeypatch, flags):
    for name in ("a", "b", "c"):
        CommitLog.open(root, name).append(claim(sink_id=name))
    keep = compaction_module._rewrite

    def busy(table, *args):
        if table.sink_id == "orders":
            raise compaction_module._retry_later(table, "somebody else compacts it")
        return keep(table, *args)

    monkeypatch.setattr(compaction_module, "_rewrite", busy)
    (root / "b" / "_delta_log" / f"{1:020}.json").write_bytes(b"")
    ended = recovery("log", "compact", "--commit-log", root, "--apply", "--yes", *flags)
    assert ended.code == 1
    if flags:
        assert [len(ended.json[key]) for key in ("done", "failed", "unknown")] == [2, 1, 1]
    for text in ("a: 1 row in", "c: 1 row in", "somebody else compacts", "b: Commit log"):
        assert text in ended.out
    shutil.rmtree(root / "b")
    ended = recovery("log", "compact", "--commit-log", root, "--apply", "--yes", *flags)
    assert ended.code == 2
