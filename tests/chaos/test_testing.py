"""The Python API draws the faults that were asked for, or says which ones it can't draw."""

from __future__ import annotations

import pytest

from eos.chaos._campaign import of_seeds
from eos.chaos._run import Result
from eos.chaos._run_options import wanted_faults
from eos.chaos.faults import FAULTS
from eos.chaos.planning import draw, only
from eos.chaos.schedule import Schedule
from eos.chaos.testing import ChaosCluster, check_exactly_once
from eos.chaos.workloads import OWN
from eos.errors import ConfigurationError

MINE = "my_jobs:orders"


@pytest.fixture
def drawn(monkeypatch) -> list[Schedule]:
    """The schedules that would run."""
    found: list[Schedule] = []
    monkeypatch.setattr(ChaosCluster, "run_schedule", lambda _, one, __: found.append(one))
    return found


@pytest.mark.parametrize(
    ("faults", "workload", "says"),
    [
        ("counter-kill", MINE, f"counter-kill needs workload {OWN}"),
        ("driver-kill,swallowed", MINE, f"swallowed needs workload {OWN}"),
        ("source", MINE, f"source needs workload {OWN}"),
        ("input-cut", OWN, "input-cut needs condition from-topic. Add it to --always or --faults."),
        ("state,driver", OWN, "state needs condition counting"),
        ("input", OWN, "null-value, large-value must be alone. Add --singles."),
        ("cluster", OWN, "topic-broker-kill needs several brokers"),
        ("interrupted", OWN, "interrupted needs condition notebook"),
    ],
)
def test_faults_that_are_never_drawn_are_refused_by_name(drawn, tmp_path, faults, workload, says):
    with pytest.raises(ConfigurationError, match=says):
        ChaosCluster(tmp_path).run(workload, faults=faults.split(","))
    assert not drawn


def test_fault_that_a_condition_of_all_schedules_excludes_is_refused():
    with pytest.raises(ConfigurationError, match="never drawn with condition from-tiered"):
        wanted_faults("input-cut", OWN, always=["from-tiered"])
    assert wanted_faults("input-cut", OWN, always=["from-topic"]) == ["input-cut"]
    assert wanted_faults("input-cut", OWN, singles=True) == ["input-cut"]


def test_too_few_epochs_are_refused(drawn, tmp_path):
    with pytest.raises(ConfigurationError, match="epochs must be at least 14, not 13"):
        ChaosCluster(tmp_path).run(epochs=13)
    ChaosCluster(tmp_path).run(epochs=14)
    assert len(drawn[0].faults) == 3


def test_seed_that_draws_nothing_is_refused_or_left_out(drawn, tmp_path):
    names = ["input-cut", "from-topic"]
    empty = {seed for seed in range(20) if not draw(seed, names).faults}
    assert 0 < len(empty) < 20
    for seed in range(20):
        if seed in empty:
            with pytest.raises(ConfigurationError, match=f"Seed {seed} draws none of the faults"):
                ChaosCluster(tmp_path).run(seed=seed, faults=names)
        else:
            ChaosCluster(tmp_path).run(seed=seed, faults=names)
    assert [one.seed for one in drawn] == [
        entry.schedule.seed for entry in of_seeds(range(20), names, 24)
    ]
    assert all(one.faults for one in drawn)


def test_condition_that_never_held_proves_nothing():
    schedule = draw(8, ["caches"])
    assert schedule.conditions == ("caches",)
    with pytest.raises(AssertionError, match="no fault has hit"):
        check_exactly_once(Result(schedule, met={"caches": ""}))
    check_exactly_once(Result(schedule, met={"caches": "line of a log"}))
    check_exactly_once(Result(only()))  # one's own schedule without faults


def test_cluster_of_several_brokers_draws_its_faults(drawn, tmp_path):
    cluster = ChaosCluster(tmp_path, brokers=2)
    for seed in range(30):
        cluster.run(seed=seed)
    parts = {FAULTS[name].part for one in drawn for name in one.kinds}
    assert "cluster" in parts
    cluster.run(faults=["cluster"])
    assert {FAULTS[name].part for name in drawn[-1].kinds} == {"cluster"}
    cluster.run(faults=["bookie-kill"])
    assert drawn[-1].kinds == {"bookie-kill"}
    assert drawn[-1].brokers == 2
