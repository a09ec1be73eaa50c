"""Blocked readers and expired transactions in the report of ``eos recovery orphans``."""

from __future__ import annotations

from eos.chaos.observers.observers import lines_of

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
