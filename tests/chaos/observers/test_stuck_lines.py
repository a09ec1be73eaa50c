"""What counts as stuck in what the recovery tool reports."""

from __future__ import annotations

from eos.chaos.observers.observers import lines_of

QUIET: dict = {"orphans": [], "held_back": [], "problems": []}


def orphan(ttl_left_s: float) -> dict:
    return {**QUIET, "orphans": [{"txn": "(0,7)", "ttl_left_s": ttl_left_s}]}


def test_nothing_is_nothing():
    assert lines_of(QUIET) == []


def test_an_empty_transaction_that_a_dead_driver_left_is_no_fault_until_its_time_is_long_over():
    assert lines_of(orphan(563.1)) == []
    assert lines_of(orphan(-30.0)) == []
    assert lines_of(orphan(-61.0)) == ["transaction (0,7) is past its time to live: -61.0 s"]


def test_readers_that_are_held_back_and_questions_without_an_answer_are():
    held = {"topic": "t-0", "cause": "pinned", "max_read": "7:1"}
    assert lines_of({**QUIET, "held_back": [held]}) == ["t-0 is read to 7:1: pinned"]
    assert lines_of({**QUIET, "problems": ["t-0 could not be asked"]}) == ["t-0 could not be asked"]
