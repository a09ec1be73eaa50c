"""Dates and timestamps of every year as text, compared with Python's calendar, Spark and Java."""

from __future__ import annotations

from datetime import date, datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eos.wire.spark_text import calendar_text

US = pa.timestamp("us")


@pytest.mark.parametrize(
    ("number", "kind", "text"),
    [
        (2_932_896, pa.date32(), "9999-12-31"),
        (2_932_897, pa.date32(), "+10000-01-01"),
        (2**31 - 1, pa.date32(), "+5881580-07-11"),
        (-719_529, pa.date32(), "-0001-12-31"),
        (-(2**31), pa.date32(), "-5877641-06-23"),
        (2**63 - 1, US, "+294247-01-10 04:00:54.775807"),
        (-(2**63), pa.timestamp("us", "UTC"), "-290308-12-21 19:59:05.224192"),
        (253_402_300_800_000, pa.timestamp("ms"), "+10000-01-01 00:00:00.000"),
    ],
)
def test_years_of_more_than_four_digits_have_a_sign(number, kind, text):
    """The format of Spark's ``to_json`` and Java's ``Instant``."""
    array = pa.array([0, number, None], kind)
    assert calendar_text(array).to_pylist()[1:] == [text, None]
    assert calendar_text(array.slice(2)).to_pylist() == [None]


@given(st.lists(st.none() | st.dates()), st.integers(-100, 100))
def test_a_day_some_eras_away_differs_only_in_the_year(days, eras):
    """The calendar repeats after 400 years, which are 146,097 days."""
    found = [None if one is None else one.toordinal() - 719_163 for one in days]
    moved = [None if one is None else one + eras * 146_097 for one in found]
    assert calendar_text(pa.array(found, pa.date32())).to_pylist() == [
        None if one is None else one.isoformat() for one in days
    ]
    for text, day in zip(
        calendar_text(pa.array(moved, pa.date32())).to_pylist(), days, strict=True
    ):
        if isinstance(day, date):
            assert int(text[:-6]) == day.year + 400 * eras
            assert text[-6:] == day.isoformat()[-6:]


@given(st.lists(st.datetimes()))
def test_timestamps_with_four_digit_years_are_those_of_python(moments):
    texts = calendar_text(pa.array(moments, US)).to_pylist()
    assert texts == [one.isoformat(" ", timespec="microseconds") for one in moments]
    assert [datetime.fromisoformat(text) for text in texts] == moments
