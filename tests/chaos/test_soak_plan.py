"""The rows of a soak, the counts its query must write, and how its outputs are checked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest

from eos.chaos._campaign import of_soak
from eos.chaos._soak_plan import (
    BASE_MS,
    DELAY_S,
    KEYS,
    VALUE_BYTES,
    WINDOW_MS,
    SoakPlan,
    soak_of,
)
from eos.chaos.checker.check import check
from eos.chaos.checker.history import (
    AnomalyKind,
    Position,
    ReaderSightings,
    Record,
    RunHistory,
    Sighting,
)
from eos.chaos.faults import FAULTS
from eos.chaos.planning import steady_soak
from eos.chaos.schedule import Schedule

PLAN = SoakPlan(rows=60_000, minutes=0.1)


def sent(plan: SoakPlan) -> Iterator[tuple[int, str, int]]:
    """The rows as the query reads them: number, key, event time."""
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


def test_expected_counts_are_those_of_the_rows():
    counts: Counter[tuple[int, str]] = Counter()
    sums: Counter[tuple[int, str]] = Counter()
    for n, key, at_ms in sent(PLAN):
        window = at_ms - at_ms % WINDOW_MS, key
        counts[window] += 1
        sums[window] += n
    made = {f"{at_ms}/{key}/{n}/{sums[at_ms, key]}" for (at_ms, key), n in counts.items()}
    expected = list(PLAN.expected())
    assert {one.id for one in expected} == made
    assert len(expected) == 6 * KEYS == len(made)


def test_a_window_is_written_by_the_epoch_whose_watermark_closes_it():
    start_s = BASE_MS / 1000
    epochs = [(3, 0.0), (4, start_s + 1.0), (5, start_s + 1.9), (6, start_s + 3.0)]
    written = [one.epoch for one in PLAN.expected(epochs)][::KEYS]
    assert written == ["4", "6", "6", "", "", ""]


def test_the_last_row_closes_every_window_of_the_others():
    last = PLAN.last_row()
    assert last.event_time_ms is not None
    last_window_end = max(int(one.id.partition("/")[0]) for one in PLAN.expected()) + WINDOW_MS
    (at_ms,) = last.event_time_ms.to_pylist()
    assert at_ms == PLAN.last_ms
    assert at_ms - 1_000 * DELAY_S > last_window_end


EXPECTED = (Record("0/a/2/5", "0", 0, "a"), Record("0/b/1/7", "0", 1, "b"))


def kinds(ids: list[str], table: list[str]) -> set[AnomalyKind]:
    """The anomalies of a topic and a table with these rows."""
    sights = tuple(
        Sighting(0.0, "t", Position(7, n, 0), one, one.split("/")[1]) for n, one in enumerate(ids)
    )
    fresh = ReaderSightings("fresh reader", sights)
    noted = frozenset("0")
    return {
        found.kind
        for found in check(
            RunHistory(
                EXPECTED, fresh, noted=noted, tables={"table": tuple(table)}, keeps_order=False
            )
        )
    }


RIGHT = [one.id for one in EXPECTED]


@pytest.mark.parametrize(
    ("topic", "table", "anomaly"),
    [
        (RIGHT[:1], RIGHT[:1], AnomalyKind.LOST_WRITE),
        ([*RIGHT, RIGHT[1]], RIGHT, AnomalyKind.DUPLICATE),
        ([RIGHT[0], "0/b/2/14"], RIGHT, AnomalyKind.CORRUPT),
        ([RIGHT[0], "0/b/1/8"], RIGHT, AnomalyKind.CORRUPT),
        (RIGHT, [*RIGHT, RIGHT[1]], AnomalyKind.TORN_OUTPUTS),
        (RIGHT, RIGHT[:1], AnomalyKind.TORN_OUTPUTS),
        (RIGHT, [RIGHT[0], "0/b/2/14"], AnomalyKind.TORN_OUTPUTS),
    ],
    ids=["lost", "twice", "miscounted", "wrong sum", "table twice", "table lost", "table wrong"],
)
def test_a_wrong_output_is_an_anomaly(topic, table, anomaly):
    assert kinds(RIGHT, RIGHT) == set()
    assert anomaly in kinds(topic, table)


def steady(seed: int, minutes: int = 60, brokers: int = 2) -> Schedule:
    return steady_soak(seed, rows=100_000, minutes=minutes, brokers=brokers)


@pytest.mark.parametrize("brokers", [1, 2])
def test_a_fault_comes_every_four_minutes_in_an_order_of_the_seed(brokers):
    schedule = steady(7, brokers=brokers)
    assert [one.epoch for one in schedule.faults] == list(range(4, 60, 4))
    assert schedule == steady(7, brokers=brokers)
    assert schedule.faults != steady(8, brokers=brokers).faults
    assert all(FAULTS[one.fault].runs_on(brokers) for one in schedule.faults)
    drawn = {name for seed in range(50) for name in steady(seed, brokers=brokers).kinds}
    assert {"executor-kill", "worker-kill"} <= drawn
    assert "driver-kill" not in drawn


def test_only_a_soak_with_rows_has_a_plan():
    (steady_entry,) = of_soak(1, 60, 2, 100_000_000)
    (other,) = of_soak(1, 60, 2)
    assert soak_of(steady_entry.schedule) == SoakPlan(100_000_000, 60)
    assert soak_of(other.schedule) is None
    assert steady_entry.words[-2:] == ("--soak-rows", "100000000")
    assert steady_entry.name != other.name
    assert soak_of(replace(steady_entry.schedule, input_rows=0)) is None
