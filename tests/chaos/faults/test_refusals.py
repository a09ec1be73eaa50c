"""Faults that must end the job: a run is good only if it ends with that error."""

from __future__ import annotations

import traceback
from types import SimpleNamespace

import pytest

from eos import errors
from eos.chaos._run import ScheduleRun
from eos.chaos.checker.history import Control, ReaderSightings, RunHistory
from eos.chaos.cluster.supervisor import JobFailed
from eos.chaos.faults import FAULTS
from eos.chaos.planning import drawn, only

REFUSED = [fault for fault in FAULTS.values() if fault.ends_with]


@pytest.fixture
def feed_with(tmp_path):
    """``feed_with("fault", end)``: feed a run of one fault whose job ends with ``end``."""
    broker = SimpleNamespace(service_url="pulsar://127.0.0.1:1", admin_url="http://127.0.0.1:2")

    def feed(fault: str, end: Exception | None) -> str:
        run = ScheduleRun(only(fault), "m:f", broker, tmp_path, tell=lambda _: None)

        def feed_all(*_: object) -> None:
            if end is not None:
                raise end

        return run._run_feed(SimpleNamespace(run=feed_all), None, None, None)

    return feed


@pytest.mark.parametrize("fault", REFUSED, ids=lambda fault: fault.name)
def test_ending_faults_have_an_eos_error_and_are_never_drawn(fault):
    assert issubclass(getattr(errors, fault.ends_with), errors.EosError)
    assert fault.name not in drawn()
    assert fault.ends_with in fault.summary


@pytest.mark.parametrize("fault", REFUSED, ids=lambda fault: fault.name)
def test_job_may_end_with_the_required_error(feed_with, fault):
    error = f"eos.errors.{fault.ends_with}: why. What to do."
    assert feed_with(fault.name, JobFailed(2, error)) == error


def test_job_that_ends_with_another_error_fails(feed_with):
    with pytest.raises(JobFailed, match="ValueError"):
        feed_with("null-value", JobFailed(2, "ValueError: nobody knows"))


def test_job_that_does_not_end_fails(feed_with):
    with pytest.raises(RuntimeError, match="null-value: the job did not end with InputError"):
        feed_with("null-value", None)


def test_job_without_ending_fault_must_not_end(feed_with):
    assert feed_with("deaf", None) == ""
    with pytest.raises(JobFailed):
        feed_with("deaf", JobFailed(4, "eos.errors.InDoubt: why"))


def test_unexpected_error_fails_one_run_and_is_logged(tmp_path, monkeypatch, caplog):
    def bug(*_: object) -> None:
        raise ValueError("nobody expected this")

    broker = SimpleNamespace(service_url="", admin_url="", is_running=lambda: True)
    monkeypatch.setattr(ScheduleRun, "_go", bug)
    result = ScheduleRun(only("deaf"), "m:f", broker, tmp_path, tell=lambda _: None).go()
    assert result.failure == "ValueError: nobody expected this"
    assert not result.is_good
    # Not its text: after an error in Spark, handlers of this process write JSON.
    (logged,) = [one for one in caplog.records if one.name == "eos.chaos._run"]
    assert traceback.extract_tb(logged.exc_info[2])[-1].name == "bug"


@pytest.mark.parametrize(("fault", "lost"), [("cluster-wiped", 0), ("topic-deleted", 1)])
def test_wiped_cluster_is_not_a_loss_of_the_broker(tmp_path, fault, lost):
    broker = SimpleNamespace(service_url="", admin_url="")
    run = ScheduleRun(only(fault), "m:f", broker, tmp_path, tell=lambda _: None)
    sent = Control(acknowledged=frozenset({"control/1"}))
    history = RunHistory(records=(), fresh=ReaderSightings("fresh", ()), control=sent)
    assert len(run._without_own_losses(history).control.lost) == lost
