"""How often a stream checks idle partitions."""

from __future__ import annotations

import logging

import pytest

from eos.sources import _open_transactions
from eos.sources._open_transactions import StandstillWatch


class Topics:
    """Partitions, of which an open transaction blocks ``held``."""

    def __init__(self, *held: str) -> None:
        self.held = set(held)
        self.asked: list[str] = []
        self.looked_at: list[str] = []

    def final_bounds(self, names):
        self.looked_at += names
        return {}

    def undecided(self, ends):
        self.asked += ends
        return {name: (7, 3) for name in ends if name in self.held}

    def open_transactions(self):
        return None


@pytest.fixture
def clock(monkeypatch):
    class Clock:
        now = 0.0

    monkeypatch.setattr(_open_transactions.time, "monotonic", lambda: Clock.now)
    return Clock


def test_only_idle_partitions_are_checked_and_in_turn(clock, caplog):
    watch, topics = StandstillWatch(), Topics("t-100")
    moving = {f"m-{n}": (0, 0) for n in range(100)}
    standing = {f"t-{n}": (7, 3) for n in range(200)}
    caplog.set_level(logging.WARNING, "eos.sources")
    for second in range(400):
        clock.now = float(second)
        watch.check({**dict.fromkeys(moving, (0, second)), **standing}, topics)
        assert second >= 10 or not topics.looked_at
        assert second >= 60 or not topics.asked
        assert len(topics.asked) <= 64 * (1 + max(0, second - 60) // 10)
    assert sorted(topics.looked_at[:200]) == sorted(topics.asked[:200]) == sorted(standing)
    assert set(topics.asked) == standing.keys()
    first, second_one = caplog.records
    assert "read nothing of t-100 for 70 s" in first.message
    assert "read nothing of t-100 for 370 s" in second_one.message
