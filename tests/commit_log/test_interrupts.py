"""Ctrl-C at any line of an append: the same object continues afterwards."""

from __future__ import annotations

import os
import random
import signal
import threading
from dataclasses import replace

import pytest

from eos import failpoints
from eos.commit_log import CommitLog
from eos.commit_log import _commit_log as log_module
from eos.commit_log import _position as position_module
from eos.errors import CommitLogError, Fenced, Retriable
from eos.protocol import State
from eos.steps import LogStep
from tests.commit_log.conftest import replace_commit
from tests.protocol.epochs import claim, committed_epoch, opened, step

pytestmark = pytest.mark.usefixtures("way")
fsync = os.fsync


def interrupt(*_, **__):
    raise KeyboardInterrupt


def at_the_failpoint(monkeypatch, log):
    return failpoints.armed(LogStep.APPEND, interrupt)


def in_the_commit(monkeypatch, log, *, commits=True):
    def write(commit):
        if commits:
            commit()
        raise KeyboardInterrupt

    context = monkeypatch.context()
    patch = context.__enter__()
    replace_commit(patch, write)
    return _Closing(context)


def before_the_commit(monkeypatch, log):
    return in_the_commit(monkeypatch, log, commits=False)


def in_the_fsync(monkeypatch, log):
    """The last one: the commit has its name."""

    def flush(descriptor):
        if os.readlink(f"/proc/self/fd/{descriptor}").endswith("_delta_log"):
            raise KeyboardInterrupt
        fsync(descriptor)

    context = monkeypatch.context()
    context.__enter__().setattr(os, "fsync", flush)
    return _Closing(context)


def in_the_history(monkeypatch, log):
    """Half added: the newest record is known, its epoch is not."""
    context = monkeypatch.context()
    patch = context.__enter__()
    patch.setattr(type(log.history), "_add_epoch", interrupt)
    return _Closing(context)


class _Closing:
    def __init__(self, context):
        self._context = context

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return self._context.__exit__(None, None, None)


PLACES = [at_the_failpoint, in_the_commit, before_the_commit, in_the_fsync, in_the_history]


@pytest.fixture
def interrupted(log, monkeypatch, request):
    """The log and the draft of an OPEN record whose append was interrupted at ``request.param``."""
    draft = opened(log.history.last_claim, "2")
    with request.param(monkeypatch, log), pytest.raises(KeyboardInterrupt):
        log.append(draft)
    return log, draft


@pytest.mark.parametrize("interrupted", PLACES, indirect=True)
def test_resync_finds_out_whether_the_record_was_appended(interrupted, request):
    log, draft = interrupted
    log.resync()
    there = draft.equals_except_time
    landed = [record for record in log.records() if there(replace(record, seq=draft.seq))]
    expected = 0 if "before_the_commit" in request.node.name else 1
    assert len(landed) == expected
    assert log.history.last_seq == 7 + expected
    assert bool(log.history.unfinished) == bool(expected)
    assert not log.is_fenced


@pytest.mark.parametrize("interrupted", PLACES, indirect=True)
def test_the_same_record_again_is_appended_once(interrupted):
    log, draft = interrupted
    record = log.append(draft)
    assert record.seq == 8
    assert record == log.records()[-1] == log.history.newest(*draft.key)
    assert log.append(draft) == record
    prepared = log.append(step(record, State.PREPARED, log.history.last_claim))
    assert prepared.seq == 9


@pytest.mark.parametrize("interrupted", PLACES, indirect=True)
def test_another_decision_follows_what_the_log_says(interrupted, request):
    log, draft = interrupted
    prepared = step(draft, State.PREPARED, log.history.last_claim)
    if "before_the_commit" in request.node.name:
        with pytest.raises(CommitLogError, match="after no record comes FAILED, OPEN"):
            log.append(prepared)
    else:
        assert log.append(prepared).seq == 9


def test_an_interrupted_claim_counts_as_own(root, monkeypatch):
    log = CommitLog.open(root, "orders")
    with in_the_commit(monkeypatch, log), pytest.raises(KeyboardInterrupt):
        log.append(claim())
    claimed = log.append(claim("run-2"))
    assert (claimed.seq, log.is_fenced) == (2, False)
    assert log.append(opened(claimed)).seq == 3


def test_a_successor_fences_the_interrupted_driver(root, log, monkeypatch):
    with in_the_commit(monkeypatch, log), pytest.raises(KeyboardInterrupt):
        log.append(opened(log.history.last_claim, "2"))
    CommitLog.open(root, "orders").append(claim("run-2"))
    with pytest.raises(Fenced, match="run-2"):
        log.append(claim("run-3"))


def test_resync_itself_may_be_interrupted(root, log, monkeypatch):
    draft = opened(log.history.last_claim, "2")
    with in_the_commit(monkeypatch, log), pytest.raises(KeyboardInterrupt):
        log.append(draft)
    with monkeypatch.context() as patch:
        patch.setattr(position_module, "read_again", interrupt)
        with pytest.raises(KeyboardInterrupt):
            log.resync()
    with in_the_fsync(monkeypatch, log), pytest.raises(KeyboardInterrupt):
        log.resync()
    assert log.history.last_seq == 7
    log.resync()
    assert log.history.last_seq == 8


def test_interrupted_compaction_loses_no_record(root, log, monkeypatch):
    monkeypatch.setattr(log_module, "COMPACTION_INTERVAL", 8)
    records = committed_epoch(log.history.last_claim, "2")
    for record in records[:2]:
        log.append(record)
    with monkeypatch.context() as patch:
        patch.setattr(log_module, "compact", interrupt)
        with pytest.raises(KeyboardInterrupt):
            log.append(records[2])
    assert log.append(records[2]).seq == 10
    assert len(log.records()) == 10


def test_resync_without_an_interrupt_reads_nothing(log, monkeypatch):
    monkeypatch.setattr(position_module, "read_again", None)
    log.resync()


def test_a_commit_that_arrives_after_the_resync_fences_no_driver(log, monkeypatch):
    """It was not found and abandoned, but then its commit arrived first."""
    late = []

    def go_on_later(commit):
        late.append(commit)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        replace_commit(patch, go_on_later)
        with pytest.raises(KeyboardInterrupt):
            log.append(opened(log.history.last_claim, "2"))
    log.resync()
    late[0]()
    with pytest.raises(Retriable, match="took its place"):
        log.append(opened(log.history.last_claim, "3"))
    assert not log.is_fenced
    (left,) = log.history.unfinished
    assert log.append(step(left, State.PREPARED, log.history.last_claim)).seq == 9


def test_an_append_of_another_thread_is_seen(log, monkeypatch):
    """The main thread is interrupted in its append; before it resyncs, another one appends."""
    draft = opened(log.history.last_claim, "2")
    with in_the_commit(monkeypatch, log), pytest.raises(KeyboardInterrupt):
        log.append(draft)
    other = opened(log.history.last_claim, "key", query_id="batch")
    thread = threading.Thread(target=log.append, args=(other,))
    thread.start()
    thread.join()
    assert log.append(draft).seq == 8
    assert log.history.last_seq == 9
    assert [record.epoch for record in log.history.unfinished] == ["2", "key"]


# Python swallows an interrupt that arrives in a callback of the garbage collector.
@pytest.mark.filterwarnings("ignore:Exception ignored in:pytest.PytestUnraisableExceptionWarning")
@pytest.mark.chaos
@pytest.mark.parametrize("beside", [False, True], ids=["house kept in appends", "beside them"])
def test_real_interrupts_at_random_moments_lose_no_confirmed_record(root, monkeypatch, beside):
    """Two hundred appends, most of them interrupted by a real signal, compaction as well."""
    monkeypatch.setattr(log_module, "COMPACTION_INTERVAL", 12)
    dice = random.Random(7)
    log = CommitLog.open(root, "orders", keep_epochs=1000, compact_in_background=beside)
    claimed = log.append(claim())
    told, interrupts = [claimed], 0
    handler = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        for number in range(67):
            for draft in committed_epoch(claimed, f"key-{number}", query_id="batch"):
                record, at_most_s = None, 0.01
                while record is None:
                    at_most_s *= 5  # in the end the time must suffice to read the log
                    try:
                        try:
                            signal.setitimer(signal.ITIMER_REAL, dice.uniform(0.0005, at_most_s))
                            record = log.append(draft)
                        finally:  # which the signal may interrupt as well
                            signal.setitimer(signal.ITIMER_REAL, 0)
                    except KeyboardInterrupt:
                        interrupts += 1
                told.append(record)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
    assert interrupts > 20
    assert log.records() == told
    assert [record.seq for record in told] == list(range(1, 203))
    assert CommitLog.open_read_only(root, "orders").records() == told
