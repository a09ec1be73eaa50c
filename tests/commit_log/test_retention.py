"""Retention in the table: atomic, concurrent with any driver, and every loss is still found."""

from __future__ import annotations

import shutil
import threading

import pytest
from deltalake import DeltaTable

from eos.commit_log import CommitLog
from eos.commit_log import _commit_log as log_module
from eos.commit_log._compaction import compact
from eos.commit_log.location import Location
from eos.errors import CommitLogError, Fenced, Retriable
from tests.protocol.epochs import QUERY, claim, committed_epoch, opened


def house(root, keep_epochs=2):
    return compact(Location(root, "orders"), "orders", keep_epochs=keep_epochs)


def commit_epochs(log, numbers):
    for number in numbers:
        for record in committed_epoch(log.history.last_claim, str(number)):
            log.append(record)


@pytest.fixture
def thinned(root, log):
    """Ten epochs, of which the last two are kept in full; the driver is alive."""
    commit_epochs(log, range(2, 10))
    house(root)
    return log


def seqs(root):
    return [record.seq for record in CommitLog.open_read_only(root, "orders").records()]


def test_old_epochs_are_dropped_and_decisions_stay(root, thinned):
    assert seqs(root) == [1, 25, 26, 27, 28, 29, 30, 31]
    reopened = CommitLog.open(root, "orders")
    assert reopened.history.is_done(QUERY, "0")
    assert reopened.history.newest(QUERY, "0") is None
    assert reopened.history.last == thinned.history.last


def test_a_live_driver_and_its_successor_continue(root, thinned):
    commit_epochs(thinned, [10])
    successor = CommitLog.open(root, "orders")
    successor.append(claim("run-2"))
    commit_epochs(successor, [11])
    with pytest.raises(Fenced, match="run-2"):
        thinned.append(opened(thinned.history.last_claim, "11"))
    assert seqs(root)[-1] == 38


def test_a_driver_thins_its_own_log_and_its_memory(root, monkeypatch):
    monkeypatch.setattr(log_module, "COMPACTION_INTERVAL", 10)
    log = CommitLog.open(root, "orders", keep_epochs=3)
    log.append(claim())
    commit_epochs(log, range(40))
    assert len(log.records()) < 30
    assert len(log.history._newest) < 12
    assert len(DeltaTable(root / "orders").file_uris()) < 12
    assert log.history.last_seq == 121


def test_retention_during_appends_loses_nothing_and_fences_no_driver(root, log):
    stop, rounds, failures = threading.Event(), [], []

    def keep_on():
        while not stop.is_set():
            try:
                rounds.append(house(root))
            except Retriable as error:  # the driver's own compaction is under way
                if "another process compacts it" not in error.message:
                    failures.append(error)
            except Exception as error:
                failures.append(error)

    thread = threading.Thread(target=keep_on)
    thread.start()
    try:
        for number in range(2, 500):
            commit_epochs(log, [number])
            if number > 30 and any(done.rows_after < done.rows_before for done in rounds):
                break
    finally:
        stop.set()
        thread.join()
    assert any(done.rows_after < done.rows_before for done in rounds)
    assert failures == []
    house(root)
    last = log.history.last_seq
    assert seqs(root) == [1, *range(last - 6, last + 1)]


def test_two_concurrent_compactions_do_no_harm(root, log):
    commit_epochs(log, range(2, 20))
    outcomes = []

    def work(keep):
        for _ in range(5):
            try:
                outcomes.append(house(root, keep))
            except Exception as error:
                outcomes.append(error)

    threads = [threading.Thread(target=work, args=(keep,)) for keep in (2, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert any(not isinstance(outcome, Exception) for outcome in outcomes)
    assert seqs(root)[-1] == log.history.last_seq
    log.append(opened(log.history.last_claim, "20"))


def test_a_driver_that_slept_through_a_retention_is_fenced(root, log):
    successor = CommitLog.open(root, "orders")
    successor.append(claim("run-2"))
    commit_epochs(successor, range(2, 12))
    house(root)
    with pytest.raises(Fenced, match="run-2"):
        log.append(opened(log.history.last_claim, "2"))
    log.refresh()
    assert log.is_fenced


def test_an_append_whose_answer_was_lost_is_found_after_retention(root, log, monkeypatch):
    commit_epochs(log, range(2, 10))
    append = log._position.table.append

    def lose_the_answer(record):
        append(record)
        house(root)
        raise OSError("connection reset")

    monkeypatch.setattr(log._position.table, "append", lose_the_answer)
    written = log.append(opened(log.history.last_claim, "10"))
    assert written.seq == 32
    assert log.history.last_seq == 32


def test_an_append_that_was_dropped_since_counts_as_another_runs(root, log, monkeypatch):
    """Its answer was lost, and before it is looked for, other drivers append for a long time."""
    append = log._position.table.append

    def sleep_long(record):
        append(record)
        successor = CommitLog.open(root, "orders")
        successor.append(claim("run-2"))
        for number in range(2, 12):
            for one in committed_epoch(successor.history.last_claim, str(number)):
                successor.append(one)
        house(root)
        raise OSError("connection reset")

    monkeypatch.setattr(log._position.table, "append", sleep_long)
    with pytest.raises(Fenced):
        log.append(claim("run-3"))


@pytest.mark.parametrize("seq", [1, 25, 26, 31], ids=["kept", "horizon", "above", "newest"])
def test_a_deleted_row_is_found(root, thinned, seq):
    DeltaTable(root / "orders").delete(f"seq = {seq}")
    with pytest.raises(CommitLogError, match=r"rolled back or deleted|missing|expected seq"):
        CommitLog.open(root, "orders")
    with pytest.raises(CommitLogError):
        house(root)


def test_a_missing_file_is_named(root, thinned):
    (path,) = [
        root / "orders" / uri.rsplit("/", 1)[1] for uri in DeltaTable(root / "orders").file_uris()
    ]
    path.unlink()
    with pytest.raises(CommitLogError, match=path.name):
        CommitLog.open(root, "orders")


def test_a_table_rolled_back_before_its_horizon_is_refused(root, log, tmp_path):
    commit_epochs(log, range(2, 6))
    shutil.copytree(root / "orders", tmp_path / "old")
    commit_epochs(log, range(6, 10))
    house(root)
    shutil.rmtree(root / "orders")
    shutil.move(tmp_path / "old", root / "orders")
    with pytest.raises(CommitLogError, match="rolled back"):
        log.append(opened(log.history.last_claim, "10"))


def test_compact_reports_and_needs_a_writable_log(root, log):
    commit_epochs(log, range(2, 10))
    with pytest.raises(CommitLogError, match="read only"):
        CommitLog.open_read_only(root, "orders").compact()
    done = CommitLog.open(root, "orders").compact(keep_epochs=2)
    assert (done.rows_before, done.rows_after) == (31, 8)
    assert (done.files_before, done.files_after) == (31, 1)
    assert done.bytes_after < done.bytes_before
