"""The baskets, and the event that closes their windows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from examples.baskets.basket_year import read_year


@pytest.fixture(scope="module")
def year():
    return read_year()


def test_the_year_is_complete_and_in_order(year):
    assert len(year.baskets) == 155_848
    assert len({basket.basket for basket in year.baskets}) == 155_848
    assert len({basket.store for basket in year.baskets}) == 457
    times = [basket.at_ms for basket in year.baskets]
    assert times == sorted(times)
    assert year.windows.total() == 155_848
    assert len(year.windows) == 38_543


def test_a_part_of_it_is_its_beginning(year):
    assert read_year(1_000).baskets == year.baskets[:1_000]


def test_no_basket_has_the_id_of_a_fake_or_of_the_last_event(year):
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
