"""Blocked readers and expired transactions in the report of ``eos recovery orphans``."""

from __future__ import annotations

import json
import subprocess
from types import SimpleNamespace
from typing import Any, cast

import pytest

from eos.chaos import _run
from eos.chaos._run import Result, ScheduleRun
from eos.chaos.checker.check import check
from eos.chaos.checker.history import AnomalyKind, Control, ReaderSightings, RunHistory
from eos.chaos.faults.nemesis import Happened
from eos.chaos.observers.observers import lines_of, told
from eos.chaos.planning import only
from eos.protocol import State
from tests.chaos.histories import small

QUIET: dict = {"orphans": [], "held_back": [], "problems": []}


def orphan(ttl_left_s: float) -> dict:
    return {**QUIET, "orphans": [{"txn": "(0,7)", "ttl_left_s": ttl_left_s}]}


def test_empty_report_has_no_lines():
    assert lines_of(QUIET) == []


def test_only_transactions_long_after_their_expiry_are_stuck():
    assert lines_of(orphan(563.1)) == []
    assert lines_of(orphan(-30.0)) == []
    assert lines_of(orphan(-61.0)) == ["transaction (0,7) is past its time to live: -61.0 s"]


def test_blocked_readers_and_problems_are_stuck():
    held = {"topic": "t-0", "cause": "pinned", "max_read": "7:1"}
    assert lines_of({**QUIET, "held_back": [held]}) == ["t-0 is readable up to 7:1: pinned"]
    assert lines_of({**QUIET, "problems": ["t-0 could not be asked"]}) == ["t-0 could not be asked"]


def ended(verb: str, code: int) -> subprocess.CompletedProcess[str]:
    command = ["python", "-m", "eos", "recovery", verb, "--json"]
    return subprocess.CompletedProcess(command, code, json.dumps(QUIET), "TypeError: 7")


def test_only_a_verb_that_fails_is_told():
    assert told(ended("orphans", 0)) == ""
    assert told(ended("verify", 1)).startswith("eos recovery verify, exit code 1: ")
    assert told(ended("verify", 1)).endswith("TypeError: 7")


@pytest.mark.parametrize(
    ("codes", "fault", "ended_by", "kinds"),
    [
        ({}, "deaf", "", []),
        ({"resolve": 1}, "deaf", "", [AnomalyKind.STUCK, AnomalyKind.FALSE_CLEAN]),
        ({"verify": 1}, "deaf", "", [AnomalyKind.FALSE_CLEAN]),
        ({"verify": 2}, "deaf", "", [AnomalyKind.FALSE_CLEAN]),
        ({"verify": 2}, "receipts-deleted-live", "", []),  # it can't be known
        ({"verify": 1}, "receipts-deleted-live", "", [AnomalyKind.FALSE_CLEAN]),
        ({"resolve": 2, "verify": 1}, "deaf", "eos.errors.InDoubt: why", []),
    ],
)
def test_last_recovery_must_work_and_verify_must_agree(tmp_path, codes, fault, ended_by, kinds):
    happened = [Happened(only(fault).faults[0], 1.0, 2.0, "it was there")]
    result = Result(only(fault), happened=happened, ended_by=ended_by)
    run = run_in(tmp_path)
    assert [one.kind for one in check(settled(run, result, list, codes))] == kinds


def run_in(folder) -> ScheduleRun:
    broker = SimpleNamespace(service_url="", admin_url="")
    return ScheduleRun(only("deaf"), "m:f", cast("Any", broker), folder, tell=lambda _: None)


def settled(run: ScheduleRun, result: Result, log_records: Any, codes: Any = ()) -> RunHistory:
    recovery = lambda verb, *_: ended(verb, dict(codes).get(verb, 0))  # noqa: E731
    target = SimpleNamespace(log_records=log_records, database=None, recovery=recovery)
    nothing = ReaderSightings("fresh", ())
    observers = SimpleNamespace(
        drain=lambda _: nothing, watched=lambda _: (), stuck=[], control=Control
    )
    feed = SimpleNamespace(expected=list, noted=frozenset)
    return run._settled(result, cast("Any", target), cast("Any", observers), cast("Any", feed))


def test_log_that_is_gone_and_the_tables_are_checked_at_the_end(tmp_path, monkeypatch):
    monkeypatch.setattr(ScheduleRun, "_ids_in_tables", lambda *_: {"table": ("1/1",)})
    monkeypatch.setattr(_run, "decisions_of", tuple)
    run, result = run_in(tmp_path), Result(only("deaf"))
    history = settled(run, result, lambda: None)
    assert not history.has_log
    assert [one.kind for one in check(history)] == [AnomalyKind.TORN_OUTPUTS]
    committed = small().decisions[-1]
    aborted = committed._replace(state=State.ABORTED)
    for record in (committed, aborted, committed):
        run._read_log(cast("Any", SimpleNamespace(log_records=lambda record=record: [record])))
    history = settled(run, result, lambda: None)
    assert history.earlier == (committed, aborted)
    found = [one.kind for one in check(history)]
    assert found == [AnomalyKind.DECISION_FLIP, AnomalyKind.TORN_OUTPUTS]
