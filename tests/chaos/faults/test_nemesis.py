"""The nemesis reports every fault, also if it can't begin or can't be healed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from subprocess import CompletedProcess
from types import SimpleNamespace
from typing import Any, cast

import pytest

from eos.chaos._run import Result, ScheduleRun
from eos.chaos.faults import FAULTS
from eos.chaos.faults._fault import Fault, Proof, Violated, refused, resolve
from eos.chaos.faults.nemesis import Nemesis
from eos.chaos.planning import only
from eos.chaos.schedule import Planned, Schedule


@contextmanager
def _fine(_: object) -> Iterator[Proof]:
    yield Proof("pid 7")


@contextmanager
def _no_start(_: object) -> Iterator[Proof]:
    raise OSError("no such topic")
    yield Proof()


@contextmanager
def _no_healing(_: object) -> Iterator[Proof]:
    yield Proof("pid 8")
    raise OSError("it stays broken")


@contextmanager
def _violated(_: object) -> Iterator[Proof]:
    raise Violated("a second call was accepted")
    yield Proof()


@contextmanager
def _proved_late(_: object) -> Iterator[Proof]:
    proof = Proof()
    yield proof
    proof.hit = "at the end"


ACTS = {
    "fine": _fine,
    "no-start": _no_start,
    "no-healing": _no_healing,
    "late": _proved_late,
    "violated": _violated,
}


@pytest.fixture
def nemesis(monkeypatch):
    def make(*names: str) -> Nemesis:
        for name in names:
            monkeypatch.setitem(FAULTS, name, Fault(name, "driver", "", ACTS[name]))
        faults = tuple(Planned(name, n, 0.0, 0.0) for n, name in enumerate(names))
        schedule = Schedule(
            seed=1, epochs=9, rows=1, padding=1, tasks=1, partitions=1, keyed=True, faults=faults
        )
        return Nemesis(schedule, cast("Any", None), lambda _: None)

    return make


def test_fault_that_cannot_begin_did_not_happen(nemesis):
    with nemesis("no-start", "late") as mine:
        mine.epoch_begins(1)
        mine.join(10)
    first, second = mine.happened
    assert (first.hit, first.error, first.is_unhealed) == ("", "OSError: no such topic", False)
    assert second.hit == "at the end"
    assert [one.outcome for one in mine.operations()] == ["fail", "ok"]


def test_unhealed_fault_aborts_the_run(nemesis):
    with nemesis("fine", "no-healing") as mine:
        mine.epoch_begins(1)
        with pytest.raises(RuntimeError, match="not healed: no-healing: OSError: it stays broken"):
            mine.join(10)
    assert [(one.hit, one.is_unhealed) for one in mine.happened] == [
        ("pid 7", False),
        ("pid 8", True),
    ]


def test_run_whose_fault_finds_a_violation_is_not_good(nemesis, monkeypatch, tmp_path):
    with nemesis("violated", "fine") as mine:
        mine.epoch_begins(1)
        mine.join(10)

    def go(run: ScheduleRun, result: Result) -> None:
        result.happened = mine.happened

    monkeypatch.setattr(ScheduleRun, "_go", go)
    broker = SimpleNamespace(service_url="", admin_url="", is_running=lambda: True)
    run = ScheduleRun(only("deaf"), "m:f", cast("Any", broker), tmp_path, tell=lambda _: None)
    result = run.go()
    assert result.failure == "violated: Violated: a second call was accepted"
    assert not result.is_good


def test_second_call_that_is_accepted_is_a_violation():
    line = "chaos: calls-twice: the second call was not refused"
    log = SimpleNamespace(await_line=lambda *_, **__: line)
    supervisor = SimpleNamespace(
        arm=lambda _: None, kill=lambda: SimpleNamespace(number=1), await_driver=lambda _: None
    )
    target = cast("Any", SimpleNamespace(supervisor=supervisor, driver_log=lambda: log))
    with pytest.raises(Violated, match="was accepted"), FAULTS["called-twice"].act(target):
        pass


@pytest.mark.parametrize(
    ("epochs", "has_log", "is_violated"),
    [((1,), True, True), ((), True, False), ((1,), False, False)],
    ids=["further epoch", "no further input", "sink without a log"],
)
def test_driver_that_was_not_refused_is_a_violation(tmp_path, epochs, has_log, is_violated):
    (tmp_path / "commits").mkdir()
    (tmp_path / "commits" / "0").touch()

    def await_end(_: float) -> bool:
        for epoch in epochs:
            (tmp_path / "commits" / str(epoch)).touch()
        return False

    driver = SimpleNamespace(number=2, await_end=await_end)
    supervisor = SimpleNamespace(
        paused=nullcontext,
        kill=lambda: SimpleNamespace(number=1),
        kill_all=lambda: None,
        await_driver=lambda _: driver,
    )
    job = SimpleNamespace(checkpoint=str(tmp_path))
    target = cast("Any", SimpleNamespace(supervisor=supervisor, job=job, has_log=has_log))
    steps: list[str] = []

    def ask() -> str:
        return refused(
            target,
            "NewLineage",
            break_it=lambda: steps.append("broken"),
            heal_it=lambda: steps.append("healed"),
        )

    if is_violated:
        with pytest.raises(Violated, match="driver 2 finished epoch 1 instead of ending with New"):
            ask()
    else:
        assert ask() == ""
    assert steps == ["broken", "healed"]


@pytest.mark.parametrize("stderr", ["", "Traceback (most recent call last):\nTypeError: 7"])
def test_recovery_that_crashes_beside_the_job_is_a_violation(stderr):
    ended = CompletedProcess("eos recovery", 1, "", stderr)
    target = cast("Any", SimpleNamespace(recovery=lambda *_: ended))
    with pytest.raises(Violated, match="TypeError: 7") if stderr else nullcontext():
        assert resolve(target) == 1
