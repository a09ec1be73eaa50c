"""The harness on real clusters: it passes eos, and catches what is wrong. Run by ``make chaos``."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from eos.chaos._run import Result
from eos.chaos.checker.anomalies import AnomalyKind
from eos.chaos.planning import only
from eos.errors import ConfigurationError
from tests.support.checkout import ROOT, SHIPPED, copy_checkout

BUILDS = Path(__file__).parent / "builds"
NAIVE = "eos.chaos.workloads:naive"

long = [pytest.mark.chaos, pytest.mark.timeout(600)]


def kinds(result: Result) -> set[AnomalyKind]:
    """What was found; the run has to have come to its end, with all of its faults."""
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

    def test_what_the_harness_once_found_stays_fixed(self, chaos_cluster, assert_exactly_once):
        """A query that ended by a lost answer before anything was in doubt; one that began an
        empty log in the place of its own; two inputs in one epoch; a ledger that was trimmed."""
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

    def test_a_job_that_fails_by_itself_breaks_off_with_its_error(self, chaos_cluster):
        result = chaos_cluster.run_schedule(only(), "tests.chaos.test_harness:broken_workload")
        assert "the driver ended 4 times" in result.failure
        assert "the user's own mistake" in result.failure


def broken_workload(spark: object, job: object) -> None:
    """Nothing that anybody could restart into working."""
    raise ValueError("the user's own mistake")


@pytest.mark.parametrize("patch", sorted(BUILDS.glob("*.patch")), ids=lambda path: path.stem)
def test_a_broken_build_still_applies(patch):
    command = ["git", "apply", "--check", str(patch)]
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == 0


def test_what_does_not_exist_is_refused_before_anything_starts(chaos_cluster):
    with pytest.raises(ConfigurationError, match="there is no bogus"):
        chaos_cluster.run(faults=["bogus"])
    with pytest.raises(ConfigurationError, match="nowhere:nothing"):
        chaos_cluster.run("nowhere:nothing")
