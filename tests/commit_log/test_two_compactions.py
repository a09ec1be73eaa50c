"""Two concurrent compactions: at most one succeeds, and the log always stays complete."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction

from eos.commit_log import CommitLog
from eos.commit_log import _commit_log as log_module
from eos.commit_log import _compaction as compaction
from eos.commit_log import _own_commit as own_commit
from eos.commit_log._compaction import compact
from eos.commit_log._log_reader import read_history
from eos.commit_log._log_table import LogTable
from eos.commit_log.location import Location
from eos.commit_log.schema import to_table
from eos.errors import CommitLogError, Retriable
from eos.protocol import State, thin
from tests.protocol.epochs import at, claim, committed_epoch, opened, step
from tests.support.logs import compact_twice
from tests.support.processes import ROOT

_BY_DELTA, _ALONE = compaction.write_deltalake, own_commit.rewrite


@pytest.fixture(autouse=True, params=["alone", "by delta"])
def round_way(request, monkeypatch):
    """The way in which rounds are committed, if there is a choice."""
    if request.param == "by delta":
        monkeypatch.setattr(compaction, "_rewrite_alone", lambda *_: False)
    return request.param


def replace_round(monkeypatch, function):
    """From now on call ``function`` for each round's commit, in both ways, with the function that
    commits; it returns whether that was done."""

    def by_delta(*args, **options):
        function(partial(_BY_DELTA, *args, **options))

    def alone(*args, **options):
        function(partial(_ALONE, *args, **options))
        return True

    monkeypatch.setattr(compaction, "write_deltalake", by_delta)
    monkeypatch.setattr(own_commit, "rewrite", alone)


def house(root, keep_epochs=100, **options):
    return compact(Location(root, "orders"), "orders", keep_epochs=keep_epochs, **options)


def seqs(root):
    return [record.seq for record in CommitLog.open_read_only(root, "orders").records()]


def raw_rows(root):
    table = DeltaTable(root / "orders")
    return sum(pa.table(table.get_add_actions())["num_records"].to_pylist())


class Compaction:
    """A compaction that has read the log, and commits on request."""

    def __init__(self, root, keep_epochs=100):
        self.watch = compaction.Stopwatch()
        self.table = LogTable.open_if_exists(Location(root, "orders"), "orders")
        _, self.records = read_history(self.table)
        self.thinning = thin(self.records, keep_epochs=keep_epochs, horizon=self.table.horizon)

    def commit(self):
        return compaction._rewrite(self.table, self.records, self.thinning, self.watch)


@pytest.mark.parametrize("older_first", [True, False], ids=["older first", "newer first"])
@pytest.mark.parametrize("keeps", [(100, 100), (1, 100), (100, 1), (1, 1)])
def test_of_two_compactions_of_different_versions_one_succeeds(root, log, older_first, keeps):
    older = Compaction(root, keeps[0])
    log.append(opened(log.history.last_claim, "2"))
    newer = Compaction(root, keeps[1])
    assert newer.table.delta.version() == older.table.delta.version() + 1
    first, second = (older, newer) if older_first else (newer, older)
    first.commit()
    with pytest.raises(Retriable, match="another process compacts"):
        second.commit()
    left = seqs(root)
    assert left == sorted(set(left))
    assert raw_rows(root) == len(left)
    assert left[-1] == 8
    house(root)  # the next compaction works again
    assert seqs(root) == left
    log.append(step(log.history.last, State.PREPARED, log.history.last_claim))


@pytest.mark.parametrize("keep_epochs", [1, 100], ids=["retention", "compaction"])
def test_deltas_own_optimize_between_reading_and_commit_comes_first(
    root, log, keep_epochs, round_way
):
    if round_way == "by delta":
        pytest.skip("to Delta it is no conflict: docs/commit-log.md")
    rival = Compaction(root, keep_epochs)
    DeltaTable(root / "orders").optimize.compact()
    with pytest.raises(Retriable, match="another process has written version 8"):
        rival.commit()
    assert raw_rows(root) == 7
    house(root, keep_epochs)
    left = seqs(root)
    assert raw_rows(root) == len(left)
    log.append(opened(log.history.last_claim, "2"))
    assert seqs(root) == [*left, 8]


def test_an_append_between_reading_and_commit_is_neither_lost_nor_blocked(root, log):
    rival = Compaction(root)
    first = log.append(opened(log.history.last_claim, "2"))
    rival.commit()
    log.append(step(first, State.PREPARED, log.history.last_claim))
    assert seqs(root) == list(range(1, 10))


def clean_up_everything_old(root):
    """Age all present files by ten minutes."""
    for path in (root / "orders" / "_delta_log").glob("0*"):
        os.utime(path, (time.time() - 600,) * 2)
    house(root)
    assert len(list((root / "orders" / "_delta_log").glob("*.json"))) <= 2


STOPPED = """
    import os, signal, sys
    from eos.commit_log import CommitLog, _compaction as compaction, _own_commit as own
    def stopped_before(write):
        def stop(*args, **options):
            os.kill(os.getpid(), signal.SIGSTOP)
            return write(*args, **options)
        return stop
    compaction.write_deltalake = stopped_before(compaction.write_deltalake)
    own.rewrite = stopped_before(own.rewrite)
    if sys.argv[3] == "by delta":
        compaction._rewrite_alone = lambda *_: False
    try:
        CommitLog.open(sys.argv[1], "orders").compact(keep_epochs=int(sys.argv[2]))
    except Exception as error:
        print(type(error).__name__, error)
"""


@pytest.mark.parametrize("keep_epochs", [1, 100], ids=["retention", "compaction"])
@pytest.mark.parametrize("is_cleaned", [False, True], ids=["commits there", "commits gone"])
def test_a_compaction_that_slept_while_another_ran_twice_does_no_harm(
    root, log, keep_epochs, is_cleaned, round_way
):
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(STOPPED), str(root), str(keep_epochs), round_way],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        claimed = log.history.last_claim
        for number in range(2, 4):
            for record in committed_epoch(claimed, str(number)):
                log.append(record)
            house(root)
        if is_cleaned:
            clean_up_everything_old(root)
        before = seqs(root)
        os.kill(process.pid, signal.SIGCONT)
        out, _ = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert out.startswith("Retriable"), out
    assert seqs(root) == before == list(range(1, 14))
    assert raw_rows(root) == 13
    assert log.append(opened(claimed, "4")).seq == 14


def test_nothing_is_committed_on_an_old_read(root, log, monkeypatch):
    monkeypatch.setattr(compaction, "_DOUBTFUL_S", 0.0)
    replace_round(monkeypatch, None)
    with pytest.raises(Retriable, match="it was read 0 s ago"):
        house(root)


def test_a_commit_that_took_long_does_not_count_and_nothing_is_deleted(root, log, monkeypatch):
    """It may be at a version whose successors were cleaned up, so that it is never read."""

    def slow(commit):
        commit()
        monkeypatch.setattr(compaction, "_DOUBTFUL_S", 0.0)

    replace_round(monkeypatch, slow)
    with pytest.raises(Retriable, match="it was read"):
        house(root)
    assert len(list((root / "orders").glob("*.parquet"))) == 8
    assert seqs(root) == list(range(1, 8))


def test_an_invisible_commit_does_not_count(root, log, monkeypatch):
    replace_round(monkeypatch, lambda commit: None)
    with pytest.raises(Retriable, match="another process compacts"):
        house(root)
    assert len(list((root / "orders").glob("*.parquet"))) == 7


def test_an_unexpected_failure_is_reported_unchanged(root, log, monkeypatch):
    def fail(commit):
        raise OSError("no space left on device")

    replace_round(monkeypatch, fail)
    with pytest.raises(OSError, match="no space left"):
        house(root)
    with pytest.raises(CommitLogError, match="compaction failed: no space left") as caught:
        log.compact()
    assert "The log is complete" in str(caught.value)


def test_a_driver_compacts_only_while_its_run_holds_the_newest_claim(root, log, monkeypatch):
    with pytest.raises(Retriable, match="another run has claimed"):
        house(root, run_id="run-0")
    monkeypatch.setattr(log_module, "COMPACTION_INTERVAL", 8)
    keep, kept = log_module.compact, []

    def overtaken(*args, **options):
        monkeypatch.setattr(log_module, "COMPACTION_INTERVAL", 100)
        CommitLog.open(root, "orders").append(claim("run-2"))
        kept.append(keep(*args, **options))

    monkeypatch.setattr(log_module, "compact", overtaken)
    first = log.append(opened(log.history.last_claim, "2"))
    prepared = log.append(step(first, State.PREPARED, log.history.last_claim))
    log.append(step(prepared, State.COMMITTED, log.history.last_claim))
    assert kept == []
    assert len(DeltaTable(root / "orders").file_uris()) == 11


def test_a_file_of_a_stopped_append_is_kept(root, log):
    """It is not part of the table yet, and as old as any orphan; the append may still continue."""
    files = {"lost-race": at(claim("run-2"), 7), "stopped": at(claim("run-2"), 8)}
    for name, record in files.items():
        path = root / "orders" / f"part-00000-{name}.parquet"
        pq.write_table(to_table(record), path)
        os.utime(path, (time.time() - 7200,) * 2)
    house(root)
    left = [path.name for path in (root / "orders").glob("part-00000-[ls]*.parquet")]
    assert left == ["part-00000-stopped.parquet"]


def test_a_file_used_since_the_listing_is_not_deleted(root, log, monkeypatch):
    listed = DeltaTable.vacuum

    def late(table, **options):
        assert options == {"dry_run": True, "full": True}
        names = listed(table, **options)
        log.append(opened(log.history.last_claim, "2"))
        return [*names, *LogTable.open_if_exists(Location(root, "orders"), "orders").files]

    monkeypatch.setattr(DeltaTable, "vacuum", late)
    house(root)
    assert seqs(root) == list(range(1, 9))


def test_a_compaction_that_slept_before_its_commit_can_not_commit(root, log):
    """It slept longer than unused files are kept, while there was nothing to rewrite."""
    house(root)
    slept = LogTable.open_if_exists(Location(root, "orders"), "orders")
    round_, path = slept.rounds + 1, root / "orders" / "part-00000-slept.parquet"
    pq.write_table(to_table(*read_history(slept)[1]), path)
    size, modified = path.stat().st_size, int(path.stat().st_mtime * 1000)
    os.utime(path, (time.time() - 7200,) * 2)
    house(root)
    assert not path.exists()
    stats = '{"numRecords": 7, "minValues": {"seq": 1}, "maxValues": {"seq": 7}}'
    with pytest.raises(CommitFailedError, match="oncurrent transaction"):
        slept.delta.create_write_transaction(
            [AddAction(path.name, size, {}, modified, data_change=True, stats=stats)],
            mode="overwrite",
            schema=slept.delta.schema(),
            commit_properties=CommitProperties(
                app_transactions=[Transaction(slept.compaction_ids.rounds, round_)]
            ),
        )
    assert seqs(root) == list(range(1, 8))


def test_an_append_only_table_is_not_reported_as_a_concurrent_compaction(root, log, caplog):
    DeltaTable(root / "orders").alter.set_table_properties({"delta.appendOnly": "true"})
    with pytest.raises(CommitLogError, match=r"append-only.*take the change back") as caught:
        house(root)
    assert not isinstance(caught.value, Retriable)
    for record in committed_epoch(log.history.last_claim, "2"):
        log.append(record)  # continues, with a warning
        log._position.files = log_module.COMPACTION_INTERVAL
    assert "append-only" in caplog.text


def test_a_driver_whose_compaction_finds_the_log_broken_stops(root, log):
    claimed = log.history.last_claim
    *before, committed = committed_epoch(claimed, "2")
    for record in before:
        log.append(record)
    next((root / "orders").glob("*.parquet")).unlink()
    log._position.files = log_module.COMPACTION_INTERVAL
    for draft in (committed, opened(claimed, "3")):
        with pytest.raises(CommitLogError, match=r"is broken: .* is missing"):
            log.append(draft)


def test_other_files_in_the_folder_are_left_alone(root, log):
    note = root / "orders" / "README.txt"
    note.write_text("mine")
    os.utime(note, (time.time() - 7200,) * 2)
    house(root)
    assert note.read_text() == "mine"


def test_rows_duplicated_by_two_old_compactions_are_read_and_written_once(root, log):
    compact_twice(root / "orders", lambda: log.append(opened(log.history.last_claim, "2")))
    assert raw_rows(root) == 15
    assert seqs(root) == list(range(1, 9))
    house(root)
    assert raw_rows(root) == 8
    assert seqs(root) == list(range(1, 9))


def test_duplicate_records_below_the_horizon_are_counted_once(root, log):
    for number in range(2, 6):
        for record in committed_epoch(log.history.last_claim, str(number)):
            log.append(record)
    house(root, keep_epochs=2)
    first = log.append(opened(log.history.last_claim, "6"))
    before = seqs(root)
    prepared = step(first, State.PREPARED, log.history.last_claim)
    compact_twice(root / "orders", lambda: log.append(prepared))
    assert raw_rows(root) == 2 * len(before) + 1
    assert seqs(root) == [*before, before[-1] + 1]
