"""What a soak calls grown, and which faults it has."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eos.chaos.faults import FAULTS
from eos.chaos.soak._gauges import (
    BOUNDED,
    EVERY_S,
    RECENTLY_S,
    Reading,
    folder_size,
    grown,
    growth,
    recent_epochs,
)
from eos.chaos.soak._run import FAULT_EVERY_MIN, schedule_of

FLAT = Reading(0.0, 0, 1_000, 100, 300, 5_000, 9_000, backlog=3)


def readings(count: int = 240) -> list[Reading]:
    return [replace(FLAT, at_s=n * EVERY_S, epochs=10 * n) for n in range(count)]


def test_what_stays_as_it_is_has_not_grown():
    assert grown(readings()) == {}


@pytest.mark.parametrize("name", BOUNDED)
def test_what_grows_all_the_time_is_found(name):
    growing = [replace(one, **{name: 100 * (n + 50)}) for n, one in enumerate(readings())]
    assert list(grown(growing)) == [name]


def test_what_is_trimmed_now_and_then_has_not_grown():
    saw = [replace(one, receipts_bytes=100 * (n % 20)) for n, one in enumerate(readings())]
    assert grown(saw) == {}


def test_a_log_that_keeps_the_last_minutes_has_not_grown_where_epochs_come_faster():
    ended = [10 * n + 30 * max(0, n - 150) for n in range(240)]
    faster = [replace(one, epochs=n) for one, n in zip(readings(), ended, strict=True)]
    recent = recent_epochs(faster)
    assert recent[:2] == [0, 10]
    assert recent[-1] == 40 * RECENTLY_S / EVERY_S
    kept = [replace(one, log_files=7 * n) for one, n in zip(faster, recent, strict=True)]
    assert grown(kept) == {}
    forever = [replace(one, log_files=7 * one.epochs) for one in faster]
    assert list(grown(forever)) == ["log_files"]


def test_a_short_run_tells_nothing():
    assert growth(readings(20), "log_bytes") is None
    assert growth(readings(100), "log_bytes") is None
    assert growth(readings(), "input_bytes") == 1
    assert growth([], "log_bytes") is None


def test_a_folder_is_as_large_as_its_files(tmp_path):
    (tmp_path / "below").mkdir()
    (tmp_path / "one").write_bytes(b"12345")
    (tmp_path / "below/two").write_bytes(b"123")
    assert folder_size(tmp_path) == (8, 2)
    assert folder_size(tmp_path / "nowhere") == (0, 0)


def test_a_fault_comes_every_few_minutes_and_the_seed_gives_their_order():
    schedule = schedule_of(7, 60)
    assert [one.epoch for one in schedule.faults] == list(range(4, 60, FAULT_EVERY_MIN))
    assert schedule == schedule_of(7, 60)
    assert schedule.faults != schedule_of(8, 60).faults
    assert all(FAULTS[one.fault].runs_on(schedule.brokers) for one in schedule.faults)
    assert "driver-kill" not in {name for seed in range(50) for name in schedule_of(seed, 60).kinds}
