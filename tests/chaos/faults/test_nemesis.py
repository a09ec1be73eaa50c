"""The nemesis reports every fault, also if it can't begin or can't be healed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest

from eos.chaos.faults import FAULTS
from eos.chaos.faults._fault import Fault, Proof
from eos.chaos.faults.nemesis import Nemesis
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
def _proved_late(_: object) -> Iterator[Proof]:
    proof = Proof()
    yield proof
    proof.hit = "at the end"


ACTS = {"fine": _fine, "no-start": _no_start, "no-healing": _no_healing, "late": _proved_late}


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
