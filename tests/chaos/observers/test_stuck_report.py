"""Blocked readers and expired transactions in the report of ``eos recovery orphans``."""

from __future__ import annotations

import json
import subprocess
from types import SimpleNamespace
from typing import Any, cast

import pytest

from eos.chaos._run import Result, ScheduleRun
from eos.chaos.checker.check import check
from eos.chaos.checker.history import AnomalyKind, Control, ReaderSightings
from eos.chaos.faults.nemesis import Happened
from eos.chaos.observers.observers import lines_of, told
from eos.chaos.planning import only

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
    target = SimpleNamespace(
        log_records=list,
        database=None,
        recovery=lambda verb, *_: ended(verb, codes.get(verb, 0)),
    )
    nothing = ReaderSightings("fresh", ())
    observers = SimpleNamespace(
        drain=lambda _: nothing, watched=lambda _: (), stuck=[], control=Control
    )
    feed = SimpleNamespace(expected=list, noted=frozenset)
    broker = SimpleNamespace(service_url="", admin_url="")
    run = ScheduleRun(only("deaf"), "m:f", cast("Any", broker), tmp_path, tell=lambda _: None)
    happened = [Happened(only(fault).faults[0], 1.0, 2.0, "it was there")]
    result = Result(only(fault), happened=happened, ended_by=ended_by)
    history = run._settled(result, cast("Any", target), cast("Any", observers), cast("Any", feed))
    assert [one.kind for one in check(history)] == kinds
