"""The demo's verdict: it fails when anything is wrong, and when nothing was shown."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from eos.transaction import LogRecord, State
from examples.flights.data import Flights
from examples.flights.driver import Event
from examples.flights.page import write_page
from examples.flights.picture import draw
from examples.flights.report import failures, line_of
from examples.flights.story import Kill, Run
from tests.transaction.epochs import NOW

T0 = NOW.timestamp()


def record(epoch: int, state: str, run_id: str = "r1", after_s: float = 0) -> LogRecord:
    return LogRecord(
        sink_id="flights",
        query_id="q",
        epoch=str(epoch),
        attempt=1,
        state=State(state),
        run_id=run_id,
        service_url="pulsar://b",
        receipt_topic="t",
        written_at=NOW + timedelta(seconds=epoch * 10 + after_s),
    )


@pytest.fixture
def good() -> Run:
    """Two epochs of two flights; the executor killed in the first, the driver in the second."""
    flights = Flights(Path("unused"), (0, 2, 4))
    run = Run("eos", flights)
    for epoch in range(2):
        run.events += [
            Event("begin", epoch, T0 + epoch * 10),
            Event("end", epoch, T0 + epoch * 10 + 5),
        ]
    run.kills = [Kill("executor", 0, T0 + 0.5), Kill("driver", 1, T0 + 12.5)]
    run.records = [
        record(0, "OPEN"),
        record(0, "ABORTED", after_s=1),
        record(0, "OPEN", after_s=1.5),
        record(0, "PREPARED", after_s=2),
        record(0, "COMMITTED", after_s=3),
        record(1, "OPEN"),
        record(1, "PREPARED", after_s=2),
        record(1, "COMMITTED", "r2", after_s=3),
    ]
    run.drained = [0, 1, 2, 3]
    run.seen = [(T0 + 3, 0), (T0 + 3, 1), (T0 + 13, 2), (T0 + 13, 3)]
    return run


def test_exactly_once_under_kills_that_took_effect_passes(good):
    assert failures(good) == []
    line = line_of(good)
    assert (line.rows_in, line.rows_out, line.duplicates, line.missing) == (4, 4, 0, 0)


@pytest.mark.parametrize(
    ("drained", "text"),
    [
        ([0, 1, 2, 3, 3], "more than once"),
        ([0, 1, 2], "missing"),
        ([0, 1, 2, 3, 99], "never written"),
        ([0, 1], "missing"),
    ],
)
def test_one_row_too_many_or_too_few_fails(good, drained, text):
    good.drained = drained
    assert any(text in failure for failure in failures(good))


def test_a_row_that_was_readable_before_prepared_fails(good):
    good.seen.insert(0, (T0 + 1, 0))
    assert any("too early" in failure for failure in failures(good))


@pytest.mark.parametrize(
    ("state", "text"), [("ABORTED", "executor's death"), ("COMMITTED", "killed driver's")]
)
def test_a_kill_without_effect_fails(good, state, text):
    if state == "ABORTED":
        good.records = [r for r in good.records if r.state != "ABORTED"]
    else:
        good.records[-1] = record(1, "COMMITTED", "r1", after_s=3)
    assert any(text in failure for failure in failures(good))


def test_the_page_stands_alone_and_says_the_verdict_first(good, tmp_path):
    draw([good], tmp_path / "p.png")
    write_page([line_of(good)], ["<b>bad</b>"], tmp_path / "p.png", tmp_path / "p.html")
    text = (tmp_path / "p.html").read_text()
    assert "&lt;b&gt;bad" in text
    assert "http://" not in text
    assert "https://" not in text
    assert "data:image/png;base64," in text
