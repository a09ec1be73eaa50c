"""The listeners of an epoch: what they get, and that they can't affect it."""

from __future__ import annotations

import contextvars
import gc
import logging
import os
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime

import pytest

from eos.committer import _observer
from eos.committer._epoch import reason_of
from eos.errors import (
    ConfigurationError,
    ConnectionLost,
    DuplicateEpochCall,
    Fenced,
    InDoubt,
    InputError,
    TransactionPoisoned,
)
from eos.events import EpochListener, EpochOutcome, StateChanged
from eos.protocol import BATCH, ReasonKind
from eos.steps import Step
from tests.support.plain_driver import QUERY
from tests.support.watched import Doubtful, FolderDriver, Notes, folder_kind
from tests.transport.scripted import wait_until

__all__ = ["folder_kind"]

ROWS = ["a", "bc", "def"]


@pytest.fixture
def notes() -> Notes:
    return Notes()


def test_a_written_epoch_is_reported_by_step_and_by_state(tmp_path, notes):
    driver = FolderDriver(tmp_path, notes)
    result = driver.run("7", ROWS)
    driver.close()
    assert notes.states == ["CLAIMED", "OPEN", "PREPARED", "COMMITTED"]
    assert notes.steps == [step.label for step in Step]
    (end,) = notes.ends
    assert (end.sink_id, end.query_id, end.epoch) == ("orders", BATCH, "7")
    assert (end.outcome, end.attempts, end.records, end.bytes) == ("committed", 1, 3, 6)
    assert end.reason is None
    assert end.steps_s == result.steps_s
    assert type(notes.events[0]).__name__ == "EpochStarted"
    assert notes.events[-1] is end
    committed = next(e for e in reversed(notes.events) if isinstance(e, StateChanged))
    assert [(one.kind, one.records, one.bytes) for one in committed.written] == [("folder", 3, 6)]
    assert (result.attempts, list(result.steps_s)) == (1, [step.label for step in Step])
    assert sum(result.steps_s.values()) == pytest.approx(result.duration_s, abs=0.01)
    assert 0 < result.duration_s <= end.duration_s


def test_the_number_of_unfinished_attempts_grows_with_open_and_shrinks_at_the_end(tmp_path, notes):
    driver = FolderDriver(tmp_path, notes)
    driver.run("7", ROWS)
    driver.close()
    seen = [
        [one.state.value for one in event.unfinished]
        for event in notes.events
        if isinstance(event, StateChanged)
    ]
    assert seen == [[], ["OPEN"], ["PREPARED"], []]


def test_a_streams_step_10_is_reported_after_the_end_of_the_call(tmp_path, notes):
    driver = FolderDriver(tmp_path, notes)
    result = driver.run("0", ROWS, query_id=QUERY, finish_later=True)
    driver.close()
    assert notes.states[-1] == "COMMITTED"
    assert notes.steps == [step.label for step in Step]
    assert "finish" not in result.steps_s
    assert result.steps_s["end"] > 0


def test_skipped_and_empty_epochs_are_reported_as_such(tmp_path, notes):
    driver = FolderDriver(tmp_path, notes)
    driver.run("7", ROWS)
    driver.run("8", [])
    driver.close()
    successor = FolderDriver(tmp_path, notes)
    assert successor.run("7", ROWS).steps_s.keys() == {"claim", "decide"}
    successor.close()
    assert [end.outcome for end in notes.ends] == ["committed", "empty", "skipped"]
    assert notes.states[4:] == ["OPEN", "ABORTING", "EMPTY", "CLAIMED"]


def test_an_aborted_attempt_names_the_failed_step(tmp_path, notes):
    driver = FolderDriver(tmp_path, notes, max_attempts=2)
    failures = [TransactionPoisoned("a send is in doubt")]

    def fail_once():
        if failures:
            raise failures.pop()

    result = driver.run("7", ROWS, before_write=fail_once)
    driver.close()
    assert notes.states[1:] == ["OPEN", "ABORTING", "ABORTED", "OPEN", "PREPARED", "COMMITTED"]
    first = ["claim", "decide", "begin", "open", "write!", "end"]
    assert notes.steps == [*first, *(step.label for step in Step if step.number > 1)]
    assert (result.attempts, notes.ends[0].attempts) == (2, 2)
    assert notes.ends[0].outcome == "committed"


def test_errors_are_reported_by_the_state_that_they_leave(tmp_path, notes):
    def refuse():
        raise InputError("no such column")

    def fail():
        raise ValueError("row 17: Ada Lovelace")

    driver = FolderDriver(tmp_path, notes)
    with pytest.raises(InputError):
        driver.run("1", ROWS, before_write=refuse)
    with pytest.raises(ValueError, match="row 17"):
        driver.run("2", ROWS, before_write=fail)
    begin, driver.participant.begin = driver.participant.begin, lambda _: refuse()
    with pytest.raises(InputError):
        driver.run("3", ROWS)
    driver.participant.begin = begin
    successor = FolderDriver(tmp_path, notes, participant=Doubtful(tmp_path / "orders"))
    with pytest.raises(InDoubt):
        successor.run("4", ROWS)
    with pytest.raises(Fenced):
        driver.run("5", ROWS)
    driver.close()
    successor.close()
    by_epoch = {end.epoch: (end.outcome, str(end.reason)) for end in notes.ends}
    assert by_epoch["1"] == (EpochOutcome.ABORTED, "INPUT: no such column")
    assert by_epoch["2"][0] is EpochOutcome.ABORTED
    assert by_epoch["3"][0] is EpochOutcome.FAILED
    assert by_epoch["4"][0] is EpochOutcome.IN_DOUBT
    assert by_epoch["5"][0] is EpochOutcome.FENCED
    assert "Lovelace" not in repr(notes.events), "what others' errors say may be a row"


class Bad(Notes):
    """Raises in every call."""

    def note(self, event):
        super().note(event)
        raise SystemExit("a listener's own end")

    on_epoch_started = on_step_ended = on_state_changed = on_epoch_ended = note


def test_a_listener_that_raises_affects_no_epoch_and_no_other_listener(tmp_path, notes, caplog):
    bad = Bad()
    driver = FolderDriver(tmp_path, bad, notes)
    assert driver.run("7", ROWS).status == "written"
    driver.close()
    assert driver.files == ROWS
    assert len(bad.events) == len(notes.events) == 16, "it is told again, all the same"
    (warning,) = [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert warning.getMessage() == "Listener Bad failed", "once, not with each event"


class Blocked(Notes):
    """Its first call never returns."""

    def __init__(self) -> None:
        super().__init__()
        self.free = threading.Event()

    def note(self, event):
        self.free.wait()
        super().note(event)

    on_epoch_started = on_step_ended = on_state_changed = on_epoch_ended = note


def test_a_listener_that_blocks_delays_no_epoch_and_its_events_are_dropped(
    tmp_path, notes, caplog, monkeypatch
):
    monkeypatch.setattr(_observer, "MAX_PENDING", 20)
    monkeypatch.setattr(_observer, "_FLUSH_S", 0.1)
    blocked = Blocked()
    driver = FolderDriver(tmp_path, blocked, notes)
    started = time.monotonic()
    for epoch in range(4):
        driver.run(str(epoch), ROWS)
    driver.close()
    assert time.monotonic() - started < 60
    assert driver.files == sorted(ROWS * 4)
    wait_until(lambda: len(notes.ends) == 4)  # close() may have given up before
    assert "Listener Blocked is too slow: events are dropped" in caplog.text
    blocked.free.set()
    deadline = time.monotonic() + 60
    while len(blocked.events) < 21 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(blocked.events) == 21, "the one that it was in, and those that waited"


class RaisingHandler(logging.Handler):
    """Raises its errors, which handlers should not do."""

    def emit(self, record):
        raise OSError("no space left on device")


def test_a_log_handler_that_raises_affects_no_epoch(tmp_path, notes, monkeypatch):
    logger = logging.getLogger("eos.events")
    monkeypatch.setattr(logger, "handlers", [RaisingHandler()])
    monkeypatch.setattr(logger, "propagate", False)
    logger.setLevel(logging.INFO)
    try:
        driver = FolderDriver(tmp_path, notes)
        assert driver.run("7", ROWS).status == "written"
    finally:
        logger.setLevel(logging.NOTSET)
    driver.close()
    assert notes.states == ["CLAIMED", "OPEN", "PREPARED", "COMMITTED"]


IN_A_FOLDER = """
import sys
from pathlib import Path
from eos.commit_log import schema
from eos.committer import participants
from examples.folder.participant import KIND
from tests.support.watched import FolderDriver

schema.kind_of = participants.kind_of = {"folder": KIND}.get
"""

# In a process of its own: a forked child runs the exit handlers of all libraries that were loaded,
# and that of pyarrow's S3, which other tests use, may abort it.
FORKING = """
import os
from tests.support.watched import Notes

class Forking(Notes):
    def __init__(self):
        super().__init__()
        self.children = []

    def on_epoch_started(self, event):
        if child := os.fork():
            self.children.append(child)

forking = Forking()
driver = FolderDriver(Path(sys.argv[1]), forking)
driver.run("7", ["a", "bc", "def"])
driver.close()
(child,) = forking.children
assert os.waitpid(child, 0) == (child, 0)
assert driver.files == ["a", "bc", "def"]
print("reported", len(forking.ends), flush=True)
"""


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="warns of forks beside threads")
def test_the_child_of_a_listener_that_forks_ends_and_reports_nothing(tmp_path):
    command = [sys.executable, "-c", IN_A_FOLDER + FORKING, str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout) == (0, "reported 1\n"), ended.stderr


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="warns of forks beside threads")
def test_the_child_of_a_driver_reports_nothing(tmp_path, notes):
    driver = FolderDriver(tmp_path, notes)
    driver.run("7", ROWS)
    driver.close()
    child = os.fork()
    if not child:  # in the child a failure must not become a second test run
        try:
            with driver.observer.epoch(BATCH, "8"):
                pass
            driver.close()
        finally:
            os._exit(threading.active_count() + len(notes.ends))
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 2, "one thread, and the one end from before"


AT_THE_END = """
import time
from eos.events import EpochListener

class Slow(EpochListener):
    def on_epoch_ended(self, event):
        time.sleep(0.3)
        print(event.outcome, flush=True)

FolderDriver(Path(sys.argv[1]), Slow()).run("7", ["a"])
"""


def test_a_process_that_ends_with_its_last_epoch_reports_it(tmp_path):
    command = [sys.executable, "-c", IN_A_FOLDER + AT_THE_END, str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert (ended.stdout, ended.stderr) == ("committed\n", "")


def test_a_listener_runs_in_the_callers_context(tmp_path):
    request = contextvars.ContextVar("request", default="none")
    seen = []

    class Asks(EpochListener):
        def on_epoch_ended(self, event):
            seen.append(request.get())

    driver = FolderDriver(tmp_path, Asks())
    request.set("of the caller")
    driver.run("7", ROWS)
    driver.close()
    assert seen == ["of the caller"]


def test_a_sink_that_is_closed_and_used_again_is_still_reported(tmp_path, notes):
    driver = FolderDriver(tmp_path, notes)
    driver.run("7", ROWS)
    driver.close()
    driver.run("8", ROWS)
    driver.close()
    assert [end.epoch for end in notes.ends] == ["7", "8"]


def test_the_thread_of_a_deleted_sink_ends(tmp_path, notes):
    before = threading.active_count()
    driver = FolderDriver(tmp_path, notes)
    driver.run("7", ROWS)
    assert threading.active_count() > before
    del driver
    gc.collect()
    deadline = time.monotonic() + 60
    while any(t.name == "eos-listener" for t in threading.enumerate()):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_clock_that_is_set_back_makes_no_age_and_no_duration_negative(tmp_path, notes):
    driver = FolderDriver(tmp_path, notes)
    driver.log._clock = lambda: datetime(2001, 1, 1, tzinfo=UTC)
    result = driver.run("7", ROWS)
    driver.close()
    assert 0 < result.duration_s < 60
    assert all(
        one.age_s == 0
        for event in notes.events
        if isinstance(event, StateChanged)
        for one in event.unfinished
    )


def test_one_line_is_logged_for_each_state_with_its_fields(tmp_path, caplog):
    caplog.set_level(logging.INFO, logger="eos.events")
    driver = FolderDriver(tmp_path)
    driver.run("7", ROWS)
    records = [record for record in caplog.records if record.name == "eos.events"]
    assert [record.state for record in records] == ["CLAIMED", "OPEN", "PREPARED", "COMMITTED"]
    last = records[-1]
    assert (last.sink, last.query, last.epoch, last.attempt) == ("orders", BATCH, "7", 1)
    assert (last.rows, last.reason, last.transaction) == (3, None, None)
    assert last.getMessage() == "sink orders, query batch, epoch 7, attempt 1: COMMITTED"
    assert records[0].getMessage() == "sink orders: CLAIMED"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ConfigurationError("there is no such option"), ReasonKind.FAILED),
        (DuplicateEpochCall("called twice"), ReasonKind.FAILED),
        (InputError("no such column"), ReasonKind.INPUT),
        (TransactionPoisoned("in doubt"), ReasonKind.POISONED),
        (ConnectionLost("gone"), ReasonKind.BROKER),
        (ValueError("of the user"), ReasonKind.FAILED),
    ],
)
def test_the_broker_is_the_reason_only_for_its_own_errors(error, kind):
    assert reason_of(error).kind is kind
