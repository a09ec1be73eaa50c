"""What goes into a soak, and how its outputs are judged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from eos.chaos.soak._plan import (
    BASE_MS,
    DELAY_S,
    KEYS,
    VALUE_BYTES,
    WINDOW_MS,
    SoakPlan,
    WindowCount,
    judge,
)

PLAN = SoakPlan(rows=60_000, minutes=0.1)


def sent(plan: SoakPlan) -> Iterator[tuple[int, str, int]]:
    """The rows as the query has to understand them: number, key, event time."""
    for block in plan.blocks():
        rows = plan.rows_of(block)
        assert rows.key is not None
        assert rows.event_time_ms is not None
        columns = (rows.value, rows.key, rows.event_time_ms)
        for value, key, at_ms in zip(*(one.to_pylist() for one in columns), strict=True):
            assert len(value) == VALUE_BYTES
            yield int(value.lstrip(b".")), key, at_ms


def test_each_number_is_sent_once_at_the_plans_pace():
    rows = list(sent(PLAN))
    assert [n for n, _, _ in rows] == list(range(60_000))
    assert rows[0][2] == BASE_MS
    assert rows[-1][2] == BASE_MS + 5_999
    assert {key for _, key, _ in rows} == {str(key) for key in range(KEYS)}


def test_what_is_expected_is_what_the_rows_make():
    counts: Counter[tuple[int, str]] = Counter()
    totals: Counter[tuple[int, str]] = Counter()
    for n, key, at_ms in sent(PLAN):
        window = at_ms - at_ms % WINDOW_MS, key
        counts[window] += 1
        totals[window] += n
    made = {WindowCount(*window, n, totals[window]) for window, n in counts.items()}
    expected = list(PLAN.expected())
    assert set(expected) == made
    assert len(expected) == 6 * KEYS == len(made)


def test_the_last_row_closes_every_window_of_the_others():
    last = PLAN.last_row()
    assert last.event_time_ms is not None
    last_window_end = max(one.window_ms for one in PLAN.expected()) + WINDOW_MS
    (at_ms,) = last.event_time_ms.to_pylist()
    assert at_ms == PLAN.last_ms
    assert at_ms - 1_000 * DELAY_S > last_window_end


def test_a_plan_travels_as_json():
    assert SoakPlan.from_json(PLAN.to_json()) == PLAN


EXPECTED = [WindowCount(0, "a", 2, 5), WindowCount(0, "b", 1, 7)]


def test_an_output_that_has_each_row_once_is_good():
    found = judge(EXPECTED, reversed(EXPECTED))
    assert (found.rows, found.counted, found.missing, found.extra) == (2, 3, 0, 0)


@pytest.mark.parametrize(
    ("rows", "missing", "extra"),
    [
        ([EXPECTED[0]], 1, 0),
        ([*EXPECTED, EXPECTED[1]], 0, 1),
        ([EXPECTED[0], WindowCount(0, "b", 2, 14)], 1, 1),
        ([EXPECTED[0], WindowCount(0, "b", 1, 8)], 1, 1),
        ([*EXPECTED, WindowCount(0, "end", 1, 0)], 0, 1),
        ([], 2, 0),
    ],
    ids=["lost", "twice", "counted twice", "another number", "of nobody", "none"],
)
def test_an_output_that_differs_is_not(rows, missing, extra):
    found = judge(EXPECTED, rows)
    assert (found.missing, found.extra) == (missing, extra)
