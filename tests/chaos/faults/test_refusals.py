"""Faults that a job must not survive: the run is good only when it ends, and ends by that."""

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
    """``feed_with("fault", end)``: feed a run of one fault, whose job ends by ``end``."""
    broker = SimpleNamespace(service_url="pulsar://127.0.0.1:1", admin_url="http://127.0.0.1:2")

    def feed(fault: str, end: Exception | None) -> str:
        run = ScheduleRun(only(fault), "m:f", broker, tmp_path, tell=lambda _: None)

        def feed_all(*_: object) -> None:
            if end is not None:
                raise end

        return run._run_feed(SimpleNamespace(run=feed_all), None, None, None)

    return feed


@pytest.mark.parametrize("fault", REFUSED, ids=lambda fault: fault.name)
def test_each_names_an_error_of_ours_and_is_never_drawn(fault):
    assert issubclass(getattr(errors, fault.ends_with), errors.EosError)
    assert fault.name not in drawn()
    assert fault.ends_with in fault.summary


@pytest.mark.parametrize("fault", REFUSED, ids=lambda fault: fault.name)
def test_a_job_that_ends_with_it_is_as_it_has_to_be(feed_with, fault):
    error = f"eos.errors.{fault.ends_with}: why. What to do."
    assert feed_with(fault.name, JobFailed(2, error)) == error


def test_a_job_that_ends_with_something_else_breaks_off(feed_with):
    with pytest.raises(JobFailed, match="ValueError"):
        feed_with("null-value", JobFailed(2, "ValueError: nobody knows"))


def test_a_job_that_goes_on_breaks_off(feed_with):
    with pytest.raises(RuntimeError, match="null-value: the job went on, and has to end"):
        feed_with("null-value", None)


def test_a_job_that_has_nothing_to_refuse_has_to_go_on(feed_with):
    assert feed_with("deaf", None) == ""
    with pytest.raises(JobFailed):
        feed_with("deaf", JobFailed(4, "eos.errors.InDoubt: why"))


def test_an_error_that_nobody_expected_breaks_off_one_run_and_shows_its_place(
    tmp_path, monkeypatch, caplog
):
    def bug(*_: object) -> None:
        raise ValueError("nobody expected this")

    broker = SimpleNamespace(service_url="", admin_url="", is_running=lambda: True)
    monkeypatch.setattr(ScheduleRun, "_go", bug)
    result = ScheduleRun(only("deaf"), "m:f", broker, tmp_path, tell=lambda _: None).go()
    assert result.failure == "ValueError: nobody expected this"
    assert not result.is_good
    # Not its text: once Spark has logged an error, handlers of this process write JSON.
    (logged,) = [one for one in caplog.records if one.name == "eos.chaos._run"]
    assert traceback.extract_tb(logged.exc_info[2])[-1].name == "bug"


@pytest.mark.parametrize(("fault", "lost"), [("cluster-wiped", 0), ("topic-deleted", 1)])
def test_a_wipe_of_ours_is_not_called_a_loss_of_the_brokers(tmp_path, fault, lost):
    broker = SimpleNamespace(service_url="", admin_url="")
    run = ScheduleRun(only(fault), "m:f", broker, tmp_path, tell=lambda _: None)
    sent = Control(acknowledged=frozenset({"control/1"}))
    history = RunHistory(records=(), fresh=ReaderSightings("fresh", ()), control=sent)
    assert len(run._without_own_losses(history).control.lost) == lost
