"""One driver at a time: conditional appends, lost replies, and appends that fail for real."""

from __future__ import annotations

import errno
import multiprocessing
import os
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from deltalake.exceptions import CommitFailedError

from eos.commit_log import CommitLog
from eos.commit_log import _log_table as table_module
from eos.commit_log import _position as position_module
from eos.commit_log.corruption import LostRace
from eos.errors import CommitLogError, Fenced, Retriable
from eos.protocol import State
from tests.commit_log import rivals
from tests.commit_log.conftest import replace_commit
from tests.protocol.epochs import FAILED, claim, opened, step

pytestmark = pytest.mark.usefixtures("way")
DECISIONS, DRIVERS = 60, 4


@pytest.mark.slow
def test_of_four_processes_exactly_one_wins_each_of_sixty_decisions(root):
    spawn = multiprocessing.get_context("spawn")
    barrier, results = spawn.Barrier(DRIVERS, timeout=60), spawn.Queue()
    processes = [
        spawn.Process(target=rivals.compete, args=(root, f"d{n}", DECISIONS, barrier, results))
        for n in range(DRIVERS)
    ]
    for process in processes:
        process.start()
    outcomes = [results.get(timeout=60) for _ in range(DECISIONS * DRIVERS)]
    for process in processes:
        process.join(timeout=60)

    winners = sorted((number, seq, name) for number, name, _, won, seq in outcomes if won == "won")
    assert [(number, seq) for number, seq, _ in winners] == [(n, n + 1) for n in range(DECISIONS)]
    records = CommitLog.open_read_only(root, "orders").records()
    assert [r.run_id for r in records] == [f"{name}-{number}" for number, _, name in winners]
    assert len({table_id for _, _, table_id, _, _ in outcomes}) == 1


def test_an_append_looks_at_the_log_even_if_its_handle_is_new(root, log):
    """A compaction refreshes Delta's handle, and reads no records."""
    CommitLog.open(root, "orders").append(claim("run-2"))
    log._position.table.delta.update_incremental()
    with pytest.raises(Fenced):
        log.append(opened(log.history.last_claim, "2"))
    numbers = [record.seq for record in CommitLog.open_read_only(root, "orders").records()]
    assert numbers == sorted(set(numbers))


def test_of_many_creators_one_creates_and_all_open_the_same_table(root):
    with ThreadPoolExecutor(4) as pool:
        for number in range(15):
            opens = [pool.submit(CommitLog.open, root, f"s{number}") for _ in range(4)]
            logs = [future.result() for future in opens]
            assert len({log.log_table_id for log in logs}) == 1
            assert CommitLog.open_read_only(root, f"s{number}").log_table_id == logs[0].log_table_id


def test_a_driver_that_lost_its_claim_stays_fenced(root, log):
    claimed = log.history.last_claim
    first = log.append(opened(claimed, "2"))
    successor = CommitLog.open(root, "orders")
    successor.append(claim("run-2"))
    for _ in range(2):
        with pytest.raises(Fenced, match="Run run-2 has appended CLAIMED at seq 9"):
            log.append(step(first, State.PREPARED, claimed))
        log.refresh()
    assert log.is_fenced
    assert [record.state for record in successor.records()][-2:] == [State.OPEN, State.CLAIMED]


def test_of_commit_and_abort_of_one_transaction_the_first_append_decides(root, log):
    claimed = log.history.last_claim
    first = log.append(opened(claimed, "2"))
    recovery = CommitLog.open(root, "orders")
    second = recovery.append(claim("run-2"))
    recovery.append(step(first, State.ABORTING, second, FAILED))
    with pytest.raises(Fenced):
        log.append(step(first, State.PREPARED, claimed))
    assert recovery.records()[-1].state is State.ABORTING


def test_refresh_alone_finds_out_about_a_lost_claim(root, log):
    CommitLog.open(root, "orders").append(claim("run-2"))
    log.refresh()
    assert log.is_fenced
    with pytest.raises(Fenced):
        log.append(opened(log.history.last_claim, "2"))


def test_two_handles_of_one_run_do_not_both_append(root, log):
    claimed = log.history.last_claim
    twin = CommitLog.open(root, "orders")
    log.append(opened(claimed, "2"))
    with pytest.raises(Fenced):
        twin.append(opened(claimed, "2"))
    assert len(log.records()) == 8


def test_a_stale_handle_conflicts_even_when_it_was_checked_before_the_other_append(
    root, log, monkeypatch
):
    claimed = log.history.last_claim

    def overtaken(commit):
        replace_commit(monkeypatch, None)
        CommitLog.open(root, "orders").append(claim("run-2"))
        return commit()

    replace_commit(monkeypatch, overtaken)
    with pytest.raises(Fenced, match="run-2"):
        log.append(opened(claimed, "2"))
    assert len(log.records()) == 8


def test_an_overtaken_driver_does_not_try_to_commit_by_delta(root, log, monkeypatch):
    claimed, tried = log.history.last_claim, []
    CommitLog.open(root, "orders").append(claim("run-2"))
    monkeypatch.setattr(table_module, "write_deltalake", lambda *a, **k: tried.append(a))
    with pytest.raises(Fenced):
        log.append(opened(claimed, "2"))
    assert tried == []


def failing(monkeypatch, *, commits, error=RuntimeError, also=None):
    """Let the next write fail: after its commit took effect, or before."""

    def write(commit):
        replace_commit(monkeypatch, None)
        if commits:
            commit()
        if also:
            also()
        raise error("connection reset")

    replace_commit(monkeypatch, write)


@pytest.mark.parametrize("error", [RuntimeError, OSError, LostRace])
def test_an_append_whose_reply_was_lost_is_found_in_the_log(root, log, monkeypatch, error):
    failing(monkeypatch, commits=True, error=error)
    record = log.append(opened(log.history.last_claim, "2"))
    assert record.seq == 8
    assert log.records()[-1] == record == log.history.last
    assert log.append(step(record, State.PREPARED, log.history.last_claim)).seq == 9


def test_a_claim_whose_reply_was_lost_is_found_in_the_log(root, monkeypatch):
    log = CommitLog.open(root, "orders")
    failing(monkeypatch, commits=True)
    claimed = log.append(claim())
    assert not log.is_fenced
    assert log.append(opened(claimed)).seq == 2


def test_an_append_that_failed_and_was_overtaken_is_fenced(root, log, monkeypatch):
    def overtake():
        CommitLog.open(root, "orders").append(claim("run-2"))

    failing(monkeypatch, commits=False, also=overtake)
    with pytest.raises(Fenced, match="run-2"):
        log.append(opened(log.history.last_claim, "2"))


def test_a_lost_reply_with_a_successor_behind_it_is_fenced(root, log, monkeypatch):
    def overtake():
        CommitLog.open(root, "orders").append(claim("run-2"))

    failing(monkeypatch, commits=True, also=overtake)
    with pytest.raises(Fenced, match="run-2"):
        log.append(opened(log.history.last_claim, "2"))
    assert [record.state for record in log.records()][7:] == [State.OPEN, State.CLAIMED]


def test_an_append_that_wrote_nothing_names_the_folder_and_can_be_repeated(log, monkeypatch):
    failing(monkeypatch, commits=False)
    record = opened(log.history.last_claim, "2")
    with pytest.raises(CommitLogError, match=r"commit log/orders: the OPEN record .*not written"):
        log.append(record)
    assert log.append(record).seq == 8


def test_a_conflict_with_another_writer_is_retried(log, monkeypatch):
    failing(monkeypatch, commits=False, error=CommitFailedError)
    assert log.append(opened(log.history.last_claim, "2")).seq == 8


def test_conflicts_without_end_are_reported_as_retriable(log, monkeypatch):
    def write(commit):
        raise CommitFailedError("protocol changed")

    replace_commit(monkeypatch, write)
    with pytest.raises(Retriable, match="protocol changed"):
        log.append(opened(log.history.last_claim, "2"))


def test_an_append_of_unknown_outcome_is_resolved_before_the_next_append(root, log, monkeypatch):
    hidden = root / "hidden"

    def hide():
        (root / "orders").rename(hidden)

    failing(monkeypatch, commits=True, also=hide)
    record = opened(log.history.last_claim, "2")
    for _ in range(2):  # the outcome stays unknown as long as the table can't be read
        with pytest.raises(CommitLogError, match="no longer exists"):
            log.append(record)
    hidden.rename(root / "orders")
    prepared = step(record, State.PREPARED, log.history.last_claim)
    assert log.append(prepared).seq == 9
    assert [one.state for one in log.records()[7:]] == [State.OPEN, State.PREPARED]


def test_a_record_that_the_disk_did_not_confirm_does_not_count_as_written(log, monkeypatch):
    fsync = os.fsync

    def unconfirmed(descriptor):
        """All but the folder in which a commit has its name."""
        if os.readlink(f"/proc/self/fd/{descriptor}").endswith("_delta_log"):
            raise OSError(errno.EIO, "Input/output error")
        fsync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", unconfirmed)
        with pytest.raises(CommitLogError, match=r"not known whether .* Input/output error"):
            log.append(opened(log.history.last_claim, "2"))
        with pytest.raises(CommitLogError, match=r"not safely on the disk: .* Input/output error"):
            log.append(claim("run-2"))
    log.resync()
    assert log.history.last_seq == 8


def test_each_append_is_flushed_with_its_data_its_commit_and_both_folders(root, log, monkeypatch):
    flushed, fsync = [], os.fsync

    def spy(descriptor):
        flushed.append(os.fstat(descriptor).st_ino)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", spy)
    log.append(opened(log.history.last_claim, "2"))
    table = root / "orders"
    newest = max(table.glob("*.parquet"), key=lambda path: path.stat().st_mtime_ns)
    commit = table / "_delta_log" / f"{8:020}.json"
    needed = [path.stat().st_ino for path in (newest, commit, table, table / "_delta_log")]
    assert sorted(flushed) == sorted(needed)
    assert flushed.index(needed[0]) < flushed.index(needed[2])


def test_a_success_after_a_long_stop_counts_only_if_it_is_in_the_log(log, monkeypatch):
    monkeypatch.setattr(position_module, "_DOUBTFUL_APPEND_S", 0.0)
    first = log.append(opened(log.history.last_claim, "2"))
    assert first.seq == 8
    # A commit to a version whose successors were cleaned up leaves no trace in the table.
    replace_commit(monkeypatch, lambda commit: None)
    with pytest.raises(CommitLogError, match="not written"):
        log.append(step(first, State.PREPARED, log.history.last_claim))


def run(code, *args):
    root = Path(__file__).parent.parent.parent
    return subprocess.run(
        [sys.executable, "-c", "import sys\n" + textwrap.dedent(code), *args],
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
    )


def test_a_full_disk_is_a_clear_error_and_the_log_continues_when_there_is_room(root, log):
    done = run(
        """
        import resource
        from tests.protocol.epochs import claim
        from eos.commit_log import CommitLog
        from eos.errors import CommitLogError
        log = CommitLog.open(sys.argv[1], "orders")
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))
        try:
            log.append(claim("run-2"))
        except CommitLogError as error:
            print(error)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        print("seq", log.append(claim("run-2")).seq)
        """,
        str(root),
    )
    assert done.returncode == 0, done.stderr
    assert f"Commit log {root}/orders: the CLAIMED record (seq 8) was not written" in done.stdout
    assert "File too large" in done.stdout
    assert "free space" in done.stdout
    assert done.stdout.endswith("seq 8\n")


def test_a_killed_writer_leaves_a_log_that_its_successor_reads(root, log):
    done = run(
        """
        import os, signal
        from tests.protocol.epochs import claim
        from eos.commit_log import CommitLog
        log = CommitLog.open(sys.argv[1], "orders")
        fsync = os.fsync
        def killed(descriptor):
            if os.readlink(f"/proc/self/fd/{descriptor}").endswith("_delta_log"):
                os.kill(os.getpid(), signal.SIGKILL)
            fsync(descriptor)
        os.fsync = killed
        log.append(claim("run-2"))
        """,
        str(root),
    )
    assert done.returncode == -9
    assert CommitLog.open(root, "orders").append(claim("run-3")).seq == 9
