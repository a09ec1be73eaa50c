"""The verdict on the baskets: each planted error is found and named."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eos.protocol import State
from examples._demo.subprocesses import Event
from examples.baskets.basket_year import Basket, ShopDay, Year
from examples.baskets.baskets_report import conclude_baskets, figures, report_on_baskets
from examples.baskets.baskets_run import BasketsRun, VictimKill
from examples.baskets.window_verdict import ShopDayCount, compare
from tests.examples.flights_runs import T0, record

DAY_MS = 86_400_000
LAST = Basket(0, 0, 30 * DAY_MS)
# Three windows: two baskets and one in shop 7, one in shop 8; basket 50 is sent twice.
BASKETS = (
    Basket(49, 7, DAY_MS),
    Basket(50, 7, 2 * DAY_MS - 1),
    Basket(51, 7, 2 * DAY_MS),
    Basket(52, 8, 2 * DAY_MS),
)
SENT = [49, 50, 51, 50, 52, LAST.basket]
FIRST, SECOND, OTHER = (
    ShopDayCount(BASKETS[0].window, 2, 3),
    ShopDayCount(BASKETS[2].window, 1, 1),
    ShopDayCount(BASKETS[3].window, 1, 1),
)
ROWS = [FIRST, SECOND, OTHER]
UNKNOWN = ShopDayCount(ShopDay(9, FIRST.window.day), 1, 1)
OF_LAST = ShopDayCount(LAST.window, 1, 1)


def verdict(*, sent=SENT, topic=ROWS, table=ROWS):
    return compare(BASKETS, LAST, sent, topic, table)


def run_of(**changes):
    victims = ("executor", "driver", "broker")
    kills = [VictimKill(what, 1, T0 + 11.5, f"{what} killed") for what in victims]
    run = BasketsRun(Year(BASKETS), kills=kills, aborted=1)
    run.events = [Event("started", -1, T0), Event("begin", 0, T0), Event("end", 1, T0 + 20)]
    run.records = [record(1, state, 12, txn=1) for state in ("OPEN", "PREPARED", "COMMITTED")]
    return replace(run, **changes)


def test_every_window_once_in_both_with_the_right_counts_passes():
    found = verdict()
    assert found.anomalies == ()
    assert (found.messages, found.duplicates, found.windows) == (5, 1, 3)
    assert conclude_baskets(run_of(), found).exit_code == 0


def test_the_order_of_rows_and_messages_does_not_matter():
    assert verdict(sent=SENT[::-1], topic=ROWS[::-1]).anomalies == ()


@pytest.mark.parametrize("output", ["topic", "table"])
@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ([*ROWS, OTHER], "1 extra rows in the {}"),
        ([*ROWS, OTHER._replace(baskets=5)], "1 extra rows in the {}"),
        ([*ROWS, UNKNOWN], "1 extra rows in the {}"),
        ([*ROWS, OF_LAST], "1 extra rows in the {}"),
        ([FIRST, SECOND], "1 windows missing from the {}"),
        ([], "3 windows missing from the {}"),
        ([FIRST._replace(baskets=1), SECOND, OTHER], "1 windows with a wrong count in the {}"),
        # A message that was read twice, and one that was not read: the count of baskets hides it.
        ([FIRST, SECOND._replace(messages=2), OTHER], "1 windows with a wrong count in the {}"),
        ([FIRST._replace(messages=2), SECOND, OTHER], "1 windows with a wrong count in the {}"),
    ],
)
def test_a_planted_error_in_one_output_is_found_and_named(output, rows, text):
    found = verdict(**{output: rows})
    assert text.format(output) in found.anomalies
    assert any("rows in only one of the outputs" in one for one in found.anomalies)
    assert conclude_baskets(run_of(), found).exit_code == 1


def test_the_same_error_in_both_outputs_is_found_too():
    found = verdict(topic=[FIRST, OTHER], table=[FIRST, OTHER])
    assert found.differing == 0
    assert len(found.anomalies) == 2


def test_an_extra_and_a_missing_row_do_not_cancel_out():
    found = verdict(topic=[FIRST, FIRST, OTHER])
    assert (found.topic.rows, found.topic.extra, found.topic.missing) == (3, 1, 1)


def test_an_unsent_basket_is_an_error_even_if_both_outputs_lack_it():
    found = verdict(sent=[49, 50, 50, 52, 0], topic=[FIRST, OTHER], table=[FIRST, OTHER])
    assert "1 baskets missing from the input topic" in found.anomalies


def test_a_readable_message_of_an_aborted_transaction_is_an_error():
    found = verdict(sent=[*SENT, BASKETS[0].as_fake().basket])
    assert found.anomalies == ("1 readable messages of aborted transactions",)


@pytest.mark.parametrize("what", ["executor", "driver", "broker"])
def test_a_kill_that_did_not_happen_shows_nothing(what):
    run = run_of()
    run.kills = [kill for kill in run.kills if kill.what != what]
    conclusion = conclude_baskets(run, verdict())
    assert conclusion.exit_code == 3
    assert f"no {what} was killed" in conclusion.sentence


def test_an_input_without_duplicates_or_aborts_shows_nothing():
    once = [FIRST._replace(messages=2), SECOND, OTHER]
    found = verdict(sent=[49, 50, 51, 52, 0], topic=once, table=once)
    assert found.anomalies == ()
    assert conclude_baskets(run_of(), found).exit_code == 3
    assert conclude_baskets(run_of(aborted=0), verdict()).exit_code == 3


def test_the_table_shows_the_counts_and_marks_errors():
    found = figures(run_of(repeated=2), verdict(topic=[FIRST, FIRST, OTHER]))
    lines = {line.label: line.cells[0] for line in found}
    assert [line.label for line in found if line.bad[0]] == [
        "rows in the output topic",
        "rows in only one of both",
    ]
    assert lines["rows in the output topic"] == "3: 1 extra, 1 missing, 0 wrong"
    assert lines["rows in the Delta table"] == "3: 0 extra, 0 missing, 0 wrong"
    assert lines["the producer's transactions"] == "1 aborted, 2 sent again"
    assert lines["driver killed, until the next commit"] == "0.5 s"
    assert run_of().in_state(State.COMMITTED) == 1


def test_the_report_names_the_records_of_each_killed_epoch():
    report = report_on_baskets(run_of(), verdict())
    assert report.evidence[0] == ("executor killed. The epoch's records: OPEN, PREPARED, COMMITTED")
    assert len(report.evidence) == 3
