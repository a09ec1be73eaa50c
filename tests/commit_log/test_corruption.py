"""A log that can't be relied on stops everything, with an error that names the file."""

from __future__ import annotations

import os
import shutil

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from eos.commit_log import SCHEMA, CommitLog, delta_table
from eos.commit_log._log_table import LogTable
from eos.commit_log.location import Location
from eos.commit_log.schema import to_row
from eos.errors import CommitLogError
from eos.protocol import State
from tests.protocol.epochs import FAILED, at, claim, opened


def data_file(root, seq):
    table = DeltaTable(root / "orders")
    for action in pa.table(table.get_add_actions(flatten=True)).to_pylist():
        if action["min.seq"] <= seq <= action["max.seq"]:
            return root / "orders" / action["path"]
    raise AssertionError


def commit_file(root, version):
    return root / "orders" / "_delta_log" / f"{version:020}.json"


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path):
    path.write_bytes(b"")


def garbage(path):
    path.write_bytes(os.urandom(path.stat().st_size))


def garbage_inside(path):
    content = bytearray(path.read_bytes())
    content[40:140] = b"\xff" * 100
    path.write_bytes(content)


def drop_last_line(path):
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))


def keep_first_line(path):
    path.write_text(path.read_text().splitlines(keepends=True)[0])


def refused(root, name):
    with pytest.raises(CommitLogError) as caught:
        CommitLog.open(root, "orders")
    assert name in str(caught.value)
    assert "is broken" in caught.value.message or "newer release" in caught.value.message
    assert str(root / "orders") in caught.value.message
    assert caught.value.hint
    assert caught.value.context["sink_id"] == "orders"
    return str(caught.value)


@pytest.mark.parametrize("damage", [cut, empty, garbage, garbage_inside, os.remove])
@pytest.mark.parametrize("seq", [1, 4, 7])
def test_a_broken_data_file_is_named(root, log, damage, seq):
    path = data_file(root, seq)
    damage(path)
    refused(root, path.name)


@pytest.mark.parametrize("damage", [cut, empty, garbage, drop_last_line, keep_first_line])
def test_a_broken_newest_commit_is_named(root, log, damage):
    path = commit_file(root, 7)
    damage(path)
    refused(root, path.name)


@pytest.mark.parametrize("damage", [cut, empty, garbage, os.remove])
@pytest.mark.parametrize("version", [0, 4])
def test_a_broken_older_commit_is_named(root, log, damage, version):
    path = commit_file(root, version)
    damage(path)
    refused(root, path.name)


@pytest.mark.parametrize(
    "look", [lambda table: table.position, lambda table: table.horizon, LogTable.read]
)
@pytest.mark.parametrize("damage", [cut, garbage])
def test_a_commit_that_breaks_under_an_open_handle_is_named(root, log, damage, look):
    table = LogTable.open_if_exists(Location(root, "orders", None), "orders")
    path = commit_file(root, 7)
    damage(path)
    with pytest.raises(CommitLogError, match="is broken") as caught:
        look(table)
    assert path.name in caught.value.message


def test_a_broken_checkpoint_is_named(root, log):
    DeltaTable(root / "orders").create_checkpoint()
    (path,) = (root / "orders" / "_delta_log").glob("*.checkpoint.parquet")
    garbage(path)
    commit_file(root, 3).unlink()
    refused(root, path.name)


def test_a_broken_pointer_to_the_checkpoint_does_no_harm(root, log):
    DeltaTable(root / "orders").create_checkpoint()
    garbage(root / "orders" / "_delta_log" / "_last_checkpoint")
    assert CommitLog.open(root, "orders").history.last_seq == 7


def test_data_without_a_delta_log_is_not_a_new_sink(root, log):
    shutil.rmtree(root / "orders" / "_delta_log")
    refused(root, "data without a Delta log")
    with pytest.raises(CommitLogError):
        CommitLog.open_read_only(root, "orders")


def test_an_interrupted_creation_is_repeated(root):
    (root / "orders" / "_delta_log").mkdir(parents=True)
    assert CommitLog.open(root, "orders").append(claim()).seq == 1


def test_a_table_that_delta_rolled_back_is_noticed_by_the_next_driver(root, log):
    DeltaTable(root / "orders").restore(4)
    refused(root, "the rows end at seq 4, but 7 were appended")


def test_deleted_rows_are_noticed(root, log):
    DeltaTable(root / "orders").delete("seq = 3")
    refused(root, "expected seq 3, found 4")


def write(root, row, *, seq):
    write_deltalake(
        DeltaTable(root / "orders"),
        pa.Table.from_pylist([row], schema=SCHEMA),
        mode="append",
        commit_properties=CommitProperties(app_transactions=[Transaction("eos/orders", seq)]),
    )


def test_a_foreign_row_is_noticed(root, log):
    row = to_row(at(claim("run-2"), 8))
    write_deltalake(
        DeltaTable(root / "orders"), pa.Table.from_pylist([row], schema=SCHEMA), mode="append"
    )
    refused(root, commit_file(root, 8).name)


def test_a_row_written_twice_is_noticed(root, log):
    write(root, to_row(at(claim("run-2"), 7)), seq=7)
    refused(root, "expected seq 8, found 7")


@pytest.mark.parametrize(
    ("column", "value", "why"),
    [
        ("state", "DONE", "'DONE' is not a valid State"),
        ("mark_id", "17:4", "not a message id"),
        ("txn_least", None, "txn_most and txn_least go together"),
        ("reason", "because", "not a reason"),
        ("ttl_ms", None, "ttl_ms is missing"),
        ("attempt", 2, "the first attempt is number 1"),
        ("run_id", "run-0", "claimed by run run-1"),
        ("opened_at", None, "opened_at is missing"),
        ("service_url", None, "seq 8"),
    ],
)
def test_a_row_that_breaks_a_rule_is_named_with_its_file(root, log, column, value, why):
    row = to_row(at(opened(log.history.last_claim, "2"), 8))
    write(root, row | {column: value}, seq=8)
    text = refused(root, data_file(root, 8).name)
    assert "seq 8" in text
    assert why in text


def test_a_record_of_a_newer_release_asks_for_an_upgrade(root, log):
    row = to_row(at(claim("run-2"), 8)) | {"record_version": 3, "state": "SUPERSEDED"}
    write(root, row, seq=8)
    text = refused(root, data_file(root, 8).name)
    assert "record_version 3 was written by a newer release" in text
    assert "restore" not in text


def test_another_kind_of_table_is_refused(root):
    write_deltalake(root / "orders", pa.table({"x": [1]}))
    refused(root, "another process is writing it")


def test_an_unreachable_store_does_not_count_as_a_broken_log(root, log, monkeypatch):
    def unreachable(location):
        raise OSError("connection refused")

    monkeypatch.setattr(delta_table, "open_table", unreachable)
    with pytest.raises(CommitLogError, match="can't be read: connection refused") as caught:
        CommitLog.open(root, "orders")
    assert "restore" not in str(caught.value)


def roll_back(root, backup):
    shutil.rmtree(root / "orders")
    shutil.copytree(backup, root / "orders")


@pytest.mark.parametrize("act", ["refresh", "append"])
def test_a_log_that_ends_before_a_known_record_was_rolled_back(root, log, tmp_path, act):
    backup = shutil.copytree(root / "orders", tmp_path / "backup")
    draft = opened(log.history.last_claim, "2")
    first = log.append(draft)
    roll_back(root, backup)
    aborting = first.advance(State.ABORTING, claim=log.history.last_claim, reason=FAILED)
    args = [aborting] if act == "append" else []
    with pytest.raises(CommitLogError, match=r"rolled back: seq 8 was there \(OPEN\)"):
        getattr(log, act)(*args)


def test_a_log_that_was_rolled_back_and_continued_by_another_is_noticed(root, log, tmp_path):
    backup = shutil.copytree(root / "orders", tmp_path / "backup")
    log.append(opened(log.history.last_claim, "2"))
    roll_back(root, backup)
    other = CommitLog.open(root, "orders")
    claimed = other.append(claim("run-2"))
    other.append(opened(claimed, "2"))
    with pytest.raises(CommitLogError, match="rolled back"):
        log.refresh()


def test_a_recreated_table_is_another_log(root, log):
    shutil.rmtree(root / "orders")
    CommitLog.open(root, "orders").append(claim("run-2"))
    with pytest.raises(CommitLogError, match="replaced by another"):
        log.refresh()


@pytest.mark.parametrize("act", ["refresh", "records", "append"])
def test_a_log_whose_folder_is_missing_is_not_recreated(root, log, act):
    shutil.rmtree(root / "orders")
    args = [opened(log.history.last_claim, "2")] if act == "append" else []
    with pytest.raises(CommitLogError, match="no longer exists"):
        getattr(log, act)(*args)
    assert not (root / "orders").exists()
