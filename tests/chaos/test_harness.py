"""The harness on real clusters: eos passes, and broken sinks are caught. Run by ``make chaos``."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from eos.chaos._run import Result
from eos.chaos.checker.history import AnomalyKind
from eos.chaos.faults.nemesis import Happened
from eos.chaos.planning import only
from eos.errors import ConfigurationError
from tests.support.checkout import ROOT, SHIPPED, copy_checkout

BUILDS = Path(__file__).parent / "builds"
NAIVE = "eos.chaos.workloads:naive"

long = [pytest.mark.chaos, pytest.mark.timeout(600)]


def kinds(result: Result) -> set[AnomalyKind]:
    """The anomalies of a run, which must have finished with all of its faults."""
    assert not result.failure
    assert all(happened.hit for happened in result.happened)
    return {anomaly.kind for anomaly in result.anomalies}


@pytest.fixture
def broken_build(tmp_path):
    """``broken_build("name")``: a copy of the product with a patch of ``builds/`` applied."""

    def build(name: str) -> Path:
        project = tmp_path / name
        copy_checkout(project, SHIPPED)
        patch = BUILDS / f"{name}.patch"
        subprocess.run(["git", "init", "-q", project], check=True)
        subprocess.run(["git", "apply", str(patch)], cwd=project, check=True)
        return project

    return build


class TestOnAClusterOfItsOwn:
    pytestmark = long

    def test_eos_survives_a_schedule(self, chaos_cluster, assert_exactly_once):
        result = chaos_cluster.run(seed=5)
        assert_exactly_once(result)
        assert result.history is not None
        assert result.history.says_clean
        assert len(result.history.fresh.sightings) == len(result.history.records) > 0

    def test_earlier_findings_stay_fixed(self, chaos_cluster, assert_exactly_once):
        """A query that ended by a lost answer before anything was in doubt; one that replaced its
        log by an empty one; two inputs in one epoch; a trimmed ledger."""
        schedule = only("lost-begin-reply", "log-away", "hand-over", "broker-kill")
        result = chaos_cluster.run_schedule(schedule)
        assert kinds(result) == set()
        assert_exactly_once(result)

    def test_the_naive_sink_writes_twice(self, chaos_cluster, assert_exactly_once):
        result = chaos_cluster.run_schedule(only("worker-kill-at-send"), NAIVE)
        assert AnomalyKind.DUPLICATE in kinds(result)
        with pytest.raises(AssertionError, match="duplicate"):
            assert_exactly_once(result)

    def test_a_sink_without_its_attempt_guard_is_caught(self, chaos_cluster, broken_build):
        schedule = only("worker-kill-at-send")
        result = chaos_cluster.run_schedule(schedule, project=broken_build("attempt_guard_off"))
        assert AnomalyKind.DUPLICATE in kinds(result)

    def test_a_sink_without_its_fence_is_caught(self, chaos_cluster, broken_build):
        schedule = only("overtaken-at-decide")
        result = chaos_cluster.run_schedule(schedule, project=broken_build("fence_off"))
        assert AnomalyKind.DUPLICATE in kinds(result)

    def test_the_same_schedule_finds_nothing_in_the_real_sink(
        self, chaos_cluster, assert_exactly_once
    ):
        result = chaos_cluster.run_schedule(only("worker-kill-at-send"))
        assert kinds(result) == set()
        assert_exactly_once(result)

    def test_failing_job_ends_the_run_with_its_error(self, chaos_cluster):
        result = chaos_cluster.run_schedule(only(), "tests.chaos.test_harness:broken_workload")
        assert "the driver ended 4 times" in result.failure
        assert "the user's own mistake" in result.failure


def test_run_that_no_fault_has_hit_proves_nothing(assert_exactly_once):
    schedule = only("deaf")
    missed = Result(schedule, happened=[Happened(schedule.faults[0], 0.0, 1.0, "")])
    assert missed.is_good
    with pytest.raises(AssertionError, match="no fault has hit"):
        assert_exactly_once(missed)
    assert_exactly_once(Result(schedule, happened=[Happened(schedule.faults[0], 0.0, 1.0, "pid")]))


def broken_workload(spark: object, job: object) -> None:
    """A workload that fails at every start."""
    raise ValueError("the user's own mistake")


@pytest.mark.parametrize("patch", sorted(BUILDS.glob("*.patch")), ids=lambda path: path.stem)
def test_a_broken_build_still_applies(patch):
    command = ["git", "apply", "--check", str(patch)]
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == 0


def test_missing_faults_and_workloads_are_refused_at_once(chaos_cluster):
    with pytest.raises(ConfigurationError, match="bogus does not exist"):
        chaos_cluster.run(faults=["bogus"])
    with pytest.raises(ConfigurationError, match="nowhere:nothing"):
        chaos_cluster.run("nowhere:nothing")
