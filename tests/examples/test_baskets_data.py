"""The baskets, the event that closes their windows, and what is drawn of a run."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from io import StringIO

import pytest
from rich.console import Console

from examples.baskets.data import read_year
from examples.baskets.picture import draw_baskets
from examples.baskets.screen import Screen, sparkline
from examples.child import Event
from tests.examples.flights_runs import T0
from tests.examples.test_baskets_judge import run_of, verdict


@pytest.fixture(scope="module")
def year():
    return read_year()


def test_the_year_is_whole_and_in_order(year):
    assert len(year.baskets) == 155_848
    assert len({basket.basket for basket in year.baskets}) == 155_848
    assert len({basket.store for basket in year.baskets}) == 457
    moments = [basket.at_ms for basket in year.baskets]
    assert moments == sorted(moments)
    assert year.windows.total() == 155_848
    assert len(year.windows) == 38_543


def test_a_part_of_it_is_its_beginning(year):
    assert read_year(1_000).baskets == year.baskets[:1_000]


def test_no_basket_is_taken_for_a_stranger_or_for_the_last_event(year):
    assert min(basket.basket for basket in year.baskets) > 0
    assert 0 < sum(basket.is_sent_twice for basket in year.baskets) < 10_000


def test_the_last_event_closes_every_window_but_its_own(year):
    delay = timedelta(days=14)
    last = year.last(delay)
    watermark = datetime.fromtimestamp(last.at_ms / 1000, UTC) - delay
    days = {window.day for window in year.windows}
    assert watermark.date() > max(days) + timedelta(days=1)
    assert last.window.day > watermark.date()
    assert last.window not in year.windows


def test_a_run_becomes_a_picture(tmp_path):
    run = run_of()
    run.backlog = [(run.began_at + second, second % 7) for second in range(20)]
    draw_baskets(run, verdict(), tmp_path / "e2e.png")
    assert (tmp_path / "e2e.png").read_bytes().startswith(b"\x89PNG")


def test_a_sparkline_shows_the_newest_numbers_by_their_height():
    assert sparkline([9, 0, 1, 8], 3) == " ▁█"
    assert sparkline([], 3) == ""


def test_in_a_terminal_the_picture_shows_backlog_watermark_and_kills():
    run = run_of(sent=2)
    run.events.append(Event("progress", 1, T0, {"watermark": "2017-05-01T00:00:00Z", "late": 0}))
    run.events.append(Event("committed", 1, T0, {"rows": 3}))
    run.strikes = [replace(run.strikes[2], text="broker-1 killed")]
    run.backlog = [(T0, 7)]
    text = StringIO()
    screen = Screen(Console(file=text, force_terminal=True, width=120))
    with screen.on():
        screen.show(run)
    for shown in ("2 baskets", "7 entries", "1 committed", "3 rows out", "watermark 2017-05-01"):
        assert shown in text.getvalue()
    assert "broker-1 killed" in text.getvalue()
