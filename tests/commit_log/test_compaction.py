"""Compaction keeps the log small, and never delays or fences a driver."""

from __future__ import annotations

import logging
import os
import threading
import time
from types import SimpleNamespace

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from eos.commit_log import CommitLog
from eos.commit_log import _commit_log as log_module
from eos.commit_log import _log_table as table_module
from eos.commit_log._compaction import compact
from eos.commit_log.location import Location
from eos.errors import CommitLogError, Fenced
from eos.protocol import State
from tests.protocol.epochs import FIGURES, claim, committed_epoch, opened, step


@pytest.fixture
def interval(monkeypatch):
    monkeypatch.setattr(log_module, "COMPACTION_INTERVAL", 10)


def active_files(root):
    return len(DeltaTable(root / "orders").file_uris())


def checkpoints(root):
    return sorted((root / "orders" / "_delta_log").glob("*.checkpoint.parquet"))


def house(root, keep_epochs=100):
    return compact(Location(root, "orders"), "orders", keep_epochs=keep_epochs)


def commit_epochs(log, claimed, numbers):
    for number in numbers:
        for record in committed_epoch(claimed, str(number)):
            log.append(record)


def test_a_long_log_stays_in_few_files_and_says_the_same(root, log, interval):
    claimed = log.history.last_claim
    commit_epochs(log, claimed, range(2, 20))
    assert active_files(root) < 15
    assert len(checkpoints(root)) >= 4
    records = log.records()
    assert [record.seq for record in records] == list(range(1, 62))
    assert vars(CommitLog.open(root, "orders").history) == vars(log.history)


def test_the_fence_holds_after_compaction(root, log):
    successor = CommitLog.open(root, "orders")
    house(root)
    assert active_files(root) == 1
    successor.append(claim("run-2"))
    with pytest.raises(Fenced):
        log.append(opened(log.history.last_claim, "2"))


def test_compaction_by_another_process_fences_no_driver(root, log):
    claimed, stop, rounds = log.history.last_claim, threading.Event(), []

    def keep_on():
        while not stop.is_set():
            house(root)
            rounds.append(1)

    thread = threading.Thread(target=keep_on)
    thread.start()
    try:
        commit_epochs(log, claimed, range(2, 22))
    finally:
        stop.set()
        thread.join()
    assert rounds
    assert log.history.last_seq == 67
    assert [record.seq for record in log.records()] == list(range(1, 68))


def test_compaction_waits_for_the_end_of_the_transaction(root, log, monkeypatch):
    monkeypatch.setattr(log_module, "COMPACTION_INTERVAL", 8)
    claimed = log.history.last_claim
    first = log.append(opened(claimed, "2"))
    prepared = log.append(step(first, State.PREPARED, claimed))
    assert active_files(root) == 9
    log.append(step(prepared, State.COMMITTED, claimed))
    assert active_files(root) == 1


def test_a_restarted_driver_knows_that_compaction_is_due(root, log, monkeypatch):
    monkeypatch.setattr(log_module, "COMPACTION_INTERVAL", 8)
    CommitLog.open(root, "orders").append(claim("run-2"))
    assert active_files(root) == 1


def test_an_append_does_not_fail_over_compaction(root, log, interval, monkeypatch, caplog):
    def fail(*_, **__):
        raise RuntimeError("no space left")

    monkeypatch.setattr(log_module, "compact", fail)
    with caplog.at_level(logging.WARNING):
        commit_epochs(log, log.history.last_claim, range(2, 5))
    assert log.history.last_seq == 16
    # Once, not at each later append.
    assert [record.getMessage() for record in caplog.records] == [
        f"Compaction of commit log {root}/orders failed: no space left"
    ]


@pytest.fixture
def beside(root, monkeypatch):
    """A log that is compacted in the background once ``goes_on`` is set; due at once."""
    monkeypatch.setattr(log_module, "COMPACTION_INTERVAL", 10)
    log = CommitLog.open(root, "orders", keep_epochs=3, compact_in_background=True)
    log.append(claim())
    keep, goes_on, rounds = log_module.compact, threading.Event(), []

    def wait_and_compact(*args, **options):
        rounds.append(threading.current_thread())
        goes_on.wait(20)
        return keep(*args, **options)

    monkeypatch.setattr(log_module, "compact", wait_and_compact)
    yield SimpleNamespace(log=log, goes_on=goes_on, rounds=rounds)
    goes_on.set()
    log.await_maintenance()


def test_no_append_waits_for_a_compaction_in_the_background(root, beside):
    log = beside.log
    commit_epochs(log, log.history.last_claim, range(2, 22))
    assert (log.history.last_seq, len(beside.rounds)) == (61, 1)  # one at a time
    beside.goes_on.set()
    log.await_maintenance()
    assert active_files(root) == 1
    assert len(log.history._newest) < 12  # the driver's memory is thinned, too
    commit_epochs(log, log.history.last_claim, range(22, 26))
    log.await_maintenance()
    assert (log.history.last_seq, len(beside.rounds)) == (73, 2)
    assert vars(CommitLog.open(root, "orders").history) == vars(log.history)


def test_a_compaction_in_the_background_that_finds_the_log_broken_stops_the_driver(root, beside):
    log = beside.log
    commit_epochs(log, log.history.last_claim, range(2, 6))
    assert len(beside.rounds) == 1
    next((root / "orders").glob("*.parquet")).unlink()
    beside.goes_on.set()
    log.await_maintenance()
    for _ in range(2):
        with pytest.raises(CommitLogError, match=r"is broken: .* is missing"):
            log.append(opened(log.history.last_claim, "6"))


def test_if_no_thread_can_be_started_appends_continue(root, beside, monkeypatch, caplog):
    def fail(*_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(log_module, "submit", fail)
    log = beside.log
    commit_epochs(log, log.history.last_claim, range(2, 6))
    assert (log.history.last_seq, beside.rounds) == (13, [])
    assert "can't start new thread" in caplog.text


def test_a_successor_ends_a_compaction_in_the_background_and_its_driver(root, beside, caplog):
    log = beside.log
    commit_epochs(log, log.history.last_claim, range(2, 6))
    CommitLog.open(root, "orders").append(claim("run-2"))
    beside.goes_on.set()
    log.await_maintenance()
    assert "another run has claimed the sink" in caplog.text
    with pytest.raises(Fenced, match="run-2"):
        log.append(opened(log.history.last_claim, "6"))


def test_compaction_that_loses_rows_deletes_nothing(root, log, monkeypatch):
    DeltaTable(root / "orders").delete("seq = 3")
    with pytest.raises(Exception, match="expected seq 3, found 4"):
        house(root)
    assert checkpoints(root) == []


def test_commits_before_the_checkpoint_are_deleted_after_two_minutes(root, log):
    folder = root / "orders" / "_delta_log"
    commit_epochs(log, log.history.last_claim, [2])
    DeltaTable(root / "orders").create_checkpoint()
    commit_epochs(log, log.history.last_claim, [3])
    for path in folder.glob("0*"):
        # Commits 0 to 10 and the checkpoint at 10 are too old, 11 to 13 are not.
        age_min = 3 if int(path.name[:20]) <= 10 else 1
        os.utime(path, (time.time() - age_min * 60,) * 2)
    house(root)
    assert min(int(path.stem) for path in folder.glob("*.json")) in (10, 11)
    assert len(list(folder.glob(f"{12:020}.json"))) == 1
    assert CommitLog.open(root, "orders").records() == log.records()
    assert log.append(opened(log.history.last_claim, "4")).seq == 14


def test_a_stale_driver_is_fenced_when_the_commits_that_it_missed_are_gone(root, log):
    CommitLog.open(root, "orders").append(claim("run-2"))
    for path in (root / "orders" / "_delta_log").glob("*.json"):
        os.utime(path, (time.time() - 3600,) * 2)
    house(root)
    assert not (root / "orders" / "_delta_log" / f"{8:020}.json").exists()
    with pytest.raises(Fenced, match="run-2"):
        log.append(opened(log.history.last_claim, "2"))
    assert len(CommitLog.open(root, "orders").records()) == 8


def test_replaced_files_are_deleted_after_their_retention_and_not_before(root, log):
    table = DeltaTable(root / "orders")
    house(root)
    assert len(list((root / "orders").glob("*.parquet"))) == 8
    table.update_incremental()
    table.alter.set_table_properties({"delta.deletedFileRetentionDuration": "interval 0 seconds"})
    house(root)
    assert len(list((root / "orders").glob("*.parquet"))) == 1
    assert len(log.records()) == 7


def test_sql_finds_big_checksums_after_compaction(root):
    log = CommitLog.open(root, "orders")
    claimed = log.append(claim())
    first = log.append(opened(claimed))
    log.append(step(first, State.PREPARED, claimed, partitions=FIGURES[:1]))
    house(root)
    query = QueryBuilder().register("log", DeltaTable(root / "orders"))
    rows = query.execute("select seq from log where checksum > 18446744073709551614").read_all()
    assert pa.table(rows).to_pylist() == [{"seq": 3}]


def test_every_few_epochs_of_delta_there_is_a_checkpoint_and_the_fence_holds_across_it(
    root, log, monkeypatch
):
    monkeypatch.setattr(table_module, "_FRESH_S", -1.0)
    commit_epochs(log, log.history.last_claim, range(2, 3))
    assert checkpoints(root) == []
    commit_epochs(log, log.history.last_claim, range(3, 12))
    assert len(checkpoints(root)) == 2
    assert vars(CommitLog.open(root, "orders").history) == vars(log.history)
    CommitLog.open(root, "orders").append(claim("run-2"))
    with pytest.raises(Fenced, match="run-2"):
        log.append(opened(log.history.last_claim, "12"))


def test_a_failed_checkpoint_does_not_fail_the_append(root, log, monkeypatch, caplog):
    def fail(_):
        raise OSError("no space left on device")

    monkeypatch.setattr(type(log._position.table), "checkpoint_when_due", fail)
    with caplog.at_level(logging.WARNING, "eos"):
        commit_epochs(log, log.history.last_claim, range(2, 4))
    assert "no space left on device" in caplog.text
    assert log.records()[-1].state is State.COMMITTED


def test_failed_checkpoints_do_not_delay_compaction(root, log, interval, monkeypatch):
    def fail(_):
        raise OSError("no space left on device")

    monkeypatch.setattr(type(log._position.table), "checkpoint_when_due", fail)
    commit_epochs(log, log.history.last_claim, range(2, 20))
    assert active_files(root) < 15


def test_files_that_a_checkpoint_no_longer_names_are_still_deleted(root, log):
    house(root)
    table = DeltaTable(root / "orders")
    table.alter.set_table_properties({"delta.deletedFileRetentionDuration": "interval 0 seconds"})
    table.create_checkpoint()  # like one between two rounds; it no longer names replaced files
    assert len(list((root / "orders").glob("*.parquet"))) > 1
    house(root)
    assert len(list((root / "orders").glob("*.parquet"))) == 1
    assert len(log.records()) == 7
