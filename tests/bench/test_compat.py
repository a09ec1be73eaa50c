"""The table of Pulsar's releases."""

from __future__ import annotations

from tests.compat.__main__ import Outcome, table


def outcome(version: str, passed: int) -> Outcome:
    return Outcome(
        version, passed, failed=0, skipped=1, schedules=2, good=2, demo_code=0, minutes=30
    )


def test_a_release_gets_its_row_and_the_others_keep_theirs() -> None:
    text = ""
    for version, passed in (("4.2.4", 10), ("5.0.0-M1", 11), ("4.2.4", 12)):
        text = table("Pulsar", text, outcome(version, passed))
    head, _, first, second = text.splitlines()
    assert head.count("|") == first.count("|") == second.count("|") == 6
    assert first.startswith("| 4.2.4 | 12 passed, 1 skipped | 2 of 2 | good |")
    assert second.startswith("| 5.0.0-M1 | 11 passed")


def test_a_release_without_any_test_is_not_good() -> None:
    assert outcome("4.2.4", 1).is_good
    assert not outcome("4.2.4", 0).is_good
