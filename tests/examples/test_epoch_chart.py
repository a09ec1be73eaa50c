"""Intervals of attempts, from the commit log or from the job's events; outages; curves."""

from __future__ import annotations

import pytest

from examples._demo.epoch_chart import AttemptPhase, Interval, as_steps
from examples.flights.flights_report import chart_of, intervals_of, received
from examples.flights.flights_run import Kill
from tests.examples.flights_runs import T0, eos_run, pulsar_client_run


def test_the_log_gives_attempts_aborts_and_times_in_doubt():
    epochs_1_and_2 = [one for one in intervals_of(eos_run()) if one.epoch in (1, 2)]
    assert epochs_1_and_2 == [
        Interval(1, 11, 13, AttemptPhase.ABORTED),
        Interval(1, 14, 15, AttemptPhase.WRITTEN),
        Interval(1, 15, 16, AttemptPhase.IN_DOUBT),
        Interval(2, 21, 22, AttemptPhase.WRITTEN),
        Interval(2, 22, 28, AttemptPhase.IN_DOUBT),
    ]


def test_without_a_log_an_epoch_that_was_written_twice_has_two_intervals():
    epoch_2 = [one for one in intervals_of(pulsar_client_run()) if one.epoch == 2]
    assert epoch_2 == [
        Interval(2, 20, 22, AttemptPhase.REPEATED),
        Interval(2, 27, 29, AttemptPhase.WRITTEN),
    ]


def test_an_outage_lasts_until_the_next_driver_begins_an_epoch():
    assert chart_of(eos_run()).outages == [(23, 27)]


def test_only_the_last_kill_of_each_kind_has_a_label():
    run = eos_run()
    run.kills.insert(0, Kill("executor", 0, T0 + 3.5, 3))
    labels = [kill.label for kill in chart_of(run).kills]
    assert labels == ["", "executor killed", "driver killed"]


def test_one_curve_counts_flights_once_and_the_other_all_rows():
    times, flights, rows = received(pulsar_client_run())
    assert (flights[-1], rows[-1]) == (0.012, 0.016)
    assert times[-1] == pytest.approx(35)
    assert times == sorted(times)


def test_rows_that_arrive_almost_together_are_one_step():
    times, flights, _ = received(eos_run())
    assert len(times) == 1 + 2 * 4
    assert sorted(set(flights)) == [0, 0.003, 0.006, 0.009, 0.012]


def test_a_curve_of_steps_keeps_each_value_until_the_next():
    assert as_steps([(0, 1), (2, 5), (3, 0)]) == ([0, 2, 2, 3, 3], [1, 1, 5, 5, 0])
    assert as_steps([]) == ([], [])
