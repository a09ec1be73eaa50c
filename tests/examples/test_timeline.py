"""The stretches of the picture, from the commit log and from what the job told."""

from __future__ import annotations

import pytest

from examples.flights.timeline import EpochFate, Stretch, outages, readable, stretches
from tests.examples.flights_runs import eos_run, today_run


def test_the_log_gives_attempts_aborts_and_what_was_in_doubt():
    epochs_1_and_2 = [s for s in stretches(eos_run()) if s.epoch in (1, 2)]
    assert epochs_1_and_2 == [
        Stretch(1, 11, 13, EpochFate.ABORTED),
        Stretch(1, 14, 15, EpochFate.WRITTEN),
        Stretch(1, 15, 16, EpochFate.IN_DOUBT),
        Stretch(2, 21, 22, EpochFate.WRITTEN),
        Stretch(2, 22, 28, EpochFate.IN_DOUBT),
    ]


def test_without_a_log_an_epoch_that_was_written_twice_shows():
    epoch_2 = [s for s in stretches(today_run()) if s.epoch == 2]
    assert epoch_2 == [
        Stretch(2, 20, 22, EpochFate.REPEATED),
        Stretch(2, 27, 29, EpochFate.WRITTEN),
    ]


def test_an_outage_lasts_until_the_next_driver_begins_an_epoch():
    assert outages(eos_run()) == [(23, 27)]


def test_the_curve_counts_flights_once_and_rows_with_every_copy():
    times, flights, rows = readable(today_run())
    assert (flights[-1], rows[-1]) == (12, 16)
    assert times[-1] == pytest.approx(35)
    assert times == sorted(times)


def test_rows_that_come_close_together_are_one_point():
    times, flights, _ = readable(eos_run())
    assert len(times) == 1 + 2 * 4
    assert sorted(set(flights)) == [0, 3, 6, 9, 12]
