"""What a soak may call bounded: only what was looked at all the time."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from rich.console import Console

from eos.chaos.faults.nemesis import Happened
from eos.chaos.observers.resources import Sample
from eos.chaos.schedule import Planned
from eos.chaos.soak.__main__ import _conclude
from eos.chaos.soak._gauges import Reading
from eos.chaos.soak._plan import SoakPlan, WindowsVerdict
from eos.chaos.soak._run import SoakResult
from eos.chaos.soak._verdict import doubts, grown

SECONDS = 3_600.0


def result(**changes: object) -> SoakResult:
    """A good one."""
    right = WindowsVerdict(rows=10, counted=100, missing=0, extra=0)
    good = SoakResult(
        plan=SoakPlan(100_000_000, 60),
        topic=right,
        table=right,
        windows=10,
        lives=1,
        epochs=2_400,
        seconds=SECONDS,
        began_at=0.0,
        happened=[Happened(Planned("broker-stop", 4, 0.0, 2.0), 240.0, 250.0, hit="broker 1")],
        samples=[Sample(n * 5.0, 300.0, 20, 900.0, 400, 180.0, 12) for n in range(720)],
        readings=[
            Reading(n * 15.0, 10 * n, 1_000, 100, 300, 5_000, 9_000, backlog=3) for n in range(240)
        ],
    )
    return replace(good, **changes)


def code(found: SoakResult) -> int:
    return _conclude(found, Console(quiet=True))


def test_a_run_that_was_looked_at_all_the_time_is_good():
    assert (grown(result()), doubts(result()), code(result())) == ({}, [], 0)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"lives": 2}, "2 lives"),
        ({"happened": []}, "no fault has hit"),
        ({"samples": []}, "nobody has looked at its processes"),
        ({"readings": []}, "nobody has looked at disks and topics"),
        ({"readings": result().readings[:200]}, "for 615 s nobody has looked at disks and topics"),
        ({"samples": result().samples[:100] + result().samples[200:]}, "for 505 s"),
        ({"readings": [replace(one, log_files=0) for one in result().readings]}, "any log_files"),
    ],
)
def test_what_nobody_has_measured_is_not_called_bounded(changes, why):
    found = result(**changes)
    assert any(why in doubt for doubt in doubts(found))
    assert code(found) == 3


def test_what_begins_late_has_grown():
    samples = [replace(one, worker_files=0 if one.at_s < 1_800 else 9) for one in result().samples]
    found = result(samples=samples)
    assert grown(found) == {"worker_files": math.inf}
    assert code(found) == 3


def test_a_wrong_output_is_worse_than_growth():
    wrong = WindowsVerdict(rows=10, counted=100, missing=1, extra=0)
    assert code(result(table=wrong, lives=2)) == 1
