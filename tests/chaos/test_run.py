"""What makes a run a failure, which proves nothing."""

from __future__ import annotations

import time
from typing import Any

import pytest

from eos.chaos._run import Result, ScheduleRun
from eos.chaos.checker.history import Anomaly, AnomalyKind
from eos.chaos.planning import only
from tests.chaos.broken_broker import BrokenBroker


@pytest.mark.parametrize(
    ("step_s", "kind", "fails"),
    [
        (-0.5, AnomalyKind.EARLY_READ, True),
        (0.5, AnomalyKind.EARLY_READ, False),
        (0.0, AnomalyKind.EARLY_READ, False),
        (-0.5, AnomalyKind.DUPLICATE, False),
    ],
)
def test_early_reads_of_a_clock_that_was_set_back_prove_nothing(
    step_s, kind, fails, monkeypatch, tmp_path
):
    real = time.time

    def go(self: ScheduleRun, result: Result) -> None:
        result.anomalies.append(Anomaly(kind, 1, ("example",)))
        monkeypatch.setattr(time, "time", lambda: real() + step_s)

    monkeypatch.setattr(ScheduleRun, "_go", go)
    broker: Any = BrokenBroker().start()
    run = ScheduleRun(only("deaf"), "m:f", broker, tmp_path, tell=lambda _: None)
    failure = run.go().failure
    assert failure.startswith("the clock was set back by 0.500 s") if fails else failure == ""
