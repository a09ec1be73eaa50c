"""The baskets, and the event that closes their windows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from examples.baskets.data import read_year
from examples.baskets.picture import draw_baskets
from examples.baskets.screen import sparkline
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
