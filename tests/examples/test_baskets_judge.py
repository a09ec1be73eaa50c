"""The judge of the demo end to end: each planted error is found, and named."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eos.protocol import State
from examples.baskets.data import Basket, ShopDay, Year
from examples.baskets.judge import ShopDayCount, judge
from examples.baskets.report import conclude_baskets, figures
from examples.baskets.run import BasketsRun, Strike
from examples.child import Event
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
NOBODY = ShopDayCount(ShopDay(9, FIRST.window.day), 1, 1)
OF_LAST = ShopDayCount(LAST.window, 1, 1)


def verdict(*, sent=SENT, topic=ROWS, table=ROWS):
    return judge(BASKETS, LAST, sent, topic, table)


def run_of(**changes):
    strikes = [Strike(what, 1, T0 + 11.5, "") for what in ("executor", "driver", "broker")]
    run = BasketsRun(Year(BASKETS), strikes=strikes, aborted=1)
    run.events = [Event("started", -1, T0), Event("begin", 0, T0), Event("end", 1, T0 + 20)]
    run.records = [record(1, state, 12, txn=1) for state in ("OPEN", "PREPARED", "COMMITTED")]
    return replace(run, **changes)


def test_every_window_once_in_both_with_the_right_counts_passes():
    found = verdict()
    assert found.anomalies == ()
    assert (found.messages, found.copies, found.windows) == (5, 1, 3)
    assert conclude_baskets(run_of(), found).exit_code == 0


def test_the_order_of_rows_and_messages_is_nothing_to_the_judge():
    assert verdict(sent=SENT[::-1], topic=ROWS[::-1]).anomalies == ()


@pytest.mark.parametrize("output", ["topic", "table"])
@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ([*ROWS, OTHER], "1 rows in the {} are too many"),
        ([*ROWS, OTHER._replace(baskets=5)], "1 rows in the {} are too many"),
        ([*ROWS, NOBODY], "1 rows in the {} are too many"),
        ([*ROWS, OF_LAST], "1 rows in the {} are too many"),
        ([FIRST, SECOND], "1 windows are missing in the {}"),
        ([], "3 windows are missing in the {}"),
        ([FIRST._replace(baskets=1), SECOND, OTHER], "1 windows in the {} have a wrong count"),
        # A message that was read twice, and one that was not read: the count of baskets hides it.
        ([FIRST, SECOND._replace(messages=2), OTHER], "1 windows in the {} have a wrong count"),
        ([FIRST._replace(messages=2), SECOND, OTHER], "1 windows in the {} have a wrong count"),
    ],
)
def test_a_planted_error_in_one_output_is_found_and_named(output, rows, text):
    found = verdict(**{output: rows})
    assert text.format(output) in found.anomalies
    assert any("in one output and not in the other" in one for one in found.anomalies)
    assert conclude_baskets(run_of(), found).exit_code == 1


def test_the_same_error_in_both_outputs_is_found_too():
    found = verdict(topic=[FIRST, OTHER], table=[FIRST, OTHER])
    assert found.differing == 0
    assert len(found.anomalies) == 2


def test_a_row_too_many_and_one_missing_do_not_make_up_for_each_other():
    found = verdict(topic=[FIRST, FIRST, OTHER])
    assert (found.topic.rows, found.topic.extra, found.topic.missing) == (3, 1, 1)


def test_a_basket_that_never_came_is_an_error_also_when_both_outputs_lack_it():
    found = verdict(sent=[49, 50, 50, 52, 0], topic=[FIRST, OTHER], table=[FIRST, OTHER])
    assert "1 baskets are not in the input topic" in found.anomalies


def test_a_readable_message_of_an_aborted_transaction_is_an_error():
    found = verdict(sent=[*SENT, BASKETS[0].as_stranger().basket])
    assert found.anomalies == ("1 messages of aborted transactions are readable",)


@pytest.mark.parametrize("what", ["executor", "driver", "broker"])
def test_a_kill_that_did_not_happen_shows_nothing(what):
    run = run_of()
    run.strikes = [strike for strike in run.strikes if strike.what != what]
    conclusion = conclude_baskets(run, verdict())
    assert conclusion.exit_code == 3
    assert f"no {what} was killed" in conclusion.sentence


def test_an_input_without_copies_or_aborts_shows_nothing():
    once = [FIRST._replace(messages=2), SECOND, OTHER]
    found = verdict(sent=[49, 50, 51, 52, 0], topic=once, table=once)
    assert found.anomalies == ()
    assert conclude_baskets(run_of(), found).exit_code == 3
    assert conclude_baskets(run_of(aborted=0), verdict()).exit_code == 3


def test_the_table_tells_what_was_counted():
    lines = dict(figures(run_of(again=2), verdict(topic=[FIRST, FIRST, OTHER])))
    assert lines["rows in the output topic"] == "3: 1 extra, 1 missing, 0 wrong"
    assert lines["rows in the Delta table"] == "3: 0 extra, 0 missing, 0 wrong"
    assert lines["the producer's transactions"] == "1 aborted, 2 sent again"
    assert lines["driver killed, until the next commit"] == "0.5 s"
    assert run_of().in_state(State.COMMITTED) == 1
