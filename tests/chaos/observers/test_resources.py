"""Which figures of a long run count as grown, and when nothing is known about them."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest

from eos.chaos._run import Result
from eos.chaos._soak_feed import folder_size
from eos.chaos.checker.history import Operation
from eos.chaos.faults.nemesis import Happened
from eos.chaos.observers.resources import (
    EVERY_S,
    RECENTLY_S,
    STORAGE,
    STORAGE_EVERY,
    Sample,
    Sampler,
    grown,
    growth,
    recent_epochs,
    unmeasured,
)
from eos.chaos.planning import soak, steady_soak
from eos.chaos.report.outcome import ScheduleOutcome, outcome_of
from tests.chaos.histories import small

SECONDS = 3_600.0
FIGURES = {
    "log_bytes": 1_000,
    "log_files": 100,
    "checkpoint_files": 300,
    "receipts_bytes": 5_000,
    "input_bytes": 9_000,
    "backlog": 3,
}


def samples(count: int = 720) -> list[Sample]:
    """A sample every five seconds, an hour by default; storage in every third."""
    found = [Sample(n * EVERY_S, 300.0, 20, 900.0, 400, 180.0, 12) for n in range(count)]
    return [
        replace(one, epochs=3 * n, **FIGURES) if n % STORAGE_EVERY == 0 else one
        for n, one in enumerate(found)
    ]


def stored(taken: list[Sample]) -> list[tuple[int, Sample]]:
    return [(n, one) for n, one in enumerate(taken) if one.log_files is not None]


def changed(name: str, value) -> list[Sample]:
    """``value(n, sample)`` is the figure in the n-th sample that has storage figures."""
    taken = samples()
    for place, (n, one) in enumerate(stored(taken)):
        taken[n] = replace(one, **{name: value(place, one)})
    return taken


def test_constant_figures_have_not_grown():
    assert grown(samples()) == {}
    assert unmeasured(samples(), SECONDS) == []


@pytest.mark.parametrize("name", STORAGE)
def test_steady_growth_is_found(name):
    assert list(grown(changed(name, lambda n, _: 100 * (n + 50)))) == [name]


def test_a_figure_that_is_trimmed_periodically_has_not_grown():
    assert grown(changed("receipts_bytes", lambda n, _: 100 * (n % 20))) == {}


def test_a_log_that_keeps_ten_minutes_has_not_grown_if_epochs_become_faster():
    faster = changed("epochs", lambda n, _: 10 * n + 30 * max(0, n - 150))
    taken = [one for _, one in stored(faster)]
    recent = recent_epochs(taken)
    assert recent[:2] == [0, 10]
    assert recent[-1] == 40 * RECENTLY_S / (EVERY_S * STORAGE_EVERY)
    kept = [replace(one, log_files=7 * n) for one, n in zip(taken, recent, strict=True)]
    assert grown(kept) == {}
    forever = [replace(one, log_files=7 * (one.epochs or 0)) for one in taken]
    assert list(grown(forever)) == ["log_files"]


def test_a_figure_that_begins_to_grow_late_has_grown_infinitely():
    late = [replace(one, worker_files=0 if one.at_s < 1_800 else 9) for one in samples()]
    assert grown(late) == {"worker_files": math.inf}


def test_a_short_run_proves_nothing_about_storage():
    assert growth(samples(60), "log_bytes") is None
    assert growth(samples(300), "log_bytes") is None
    assert growth(samples(), "input_bytes") == 1
    assert growth([], "log_bytes") is None
    assert unmeasured([], 600.0) == []


def without_storage(taken: list[Sample]) -> list[Sample]:
    return [replace(one, **dict.fromkeys((*FIGURES, "epochs"))) for one in taken]


def outcome(**changes: object) -> ScheduleOutcome:
    """The outcome of a good soak of an hour, with these changes of its ``Result``."""
    drivers = (Operation("driver run 1", 0.0, SECONDS, "ok"),)
    history = replace(small(), operations=changes.pop("operations", drivers))
    schedule = steady_soak(1, rows=100_000_000, minutes=60, brokers=2)
    happened = [Happened(schedule.faults[0], 240.0, 250.0, hit="broker 1")]
    made = Result(schedule, history, happened=happened, samples=samples(), ended_at=SECONDS + 60)
    for name, value in changes.items():
        setattr(made, name, value)
    return outcome_of(made, "eos.chaos.workloads:stream", minutes=60)


def test_a_soak_that_was_measured_all_the_time_is_good():
    assert outcome().doubts == []
    assert outcome().is_good


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (
            {"operations": [Operation(f"driver run {n}", 0.0, SECONDS, "ok") for n in (1, 2)]},
            "the driver was started 2 times",
        ),
        ({"happened": []}, "no fault has hit"),
        ({"samples": []}, "no sample of its processes for 3,600 s"),
        ({"samples": without_storage(samples())}, "no sample of its storage for 3,600 s"),
        (
            {"samples": samples()[:600] + without_storage(samples()[600:])},
            "no sample of its storage for 615 s",
        ),
        ({"samples": samples()[:100] + samples()[200:]}, "no sample of its processes for 505 s"),
        ({"samples": changed("log_files", lambda *_: 0)}, "log_files was 0 before and after"),
    ],
)
def test_a_soak_that_was_not_measured_is_not_good(changes, why):
    found = outcome(**changes)
    assert why in found.doubts
    assert not found.is_good
    assert why in found.complaint


def test_a_soak_without_steady_rows_is_not_judged_by_its_storage():
    found = outcome(schedule=soak(1, minutes=60), samples=without_storage(samples()))
    assert found.doubts == []


def test_a_soak_whose_driver_has_died_is_not_good():
    drivers = [Operation(f"driver run {n}", 0.0, SECONDS, "fail") for n in (1, 2, 3)]
    found = outcome(schedule=soak(1, minutes=60), operations=drivers)
    assert found.complaint == "the driver was started 3 times"


def test_the_sampler_measures_storage_with_every_third_sample():
    driver = SimpleNamespace(pid=1, driver_processes=list, workers=list)
    sampler = Sampler(SimpleNamespace(current=driver), lambda: {"log_files": 7})
    for _ in range(6):
        sampler._take()
    assert [one.log_files for one in sampler.samples] == [None, None, 7] * 2


def test_a_folder_is_as_large_as_its_files(tmp_path):
    (tmp_path / "below").mkdir()
    (tmp_path / "one").write_bytes(b"12345")
    (tmp_path / "below/two").write_bytes(b"123")
    assert folder_size(tmp_path) == (8, 2)
    assert folder_size(tmp_path / "nowhere") == (0, 0)
