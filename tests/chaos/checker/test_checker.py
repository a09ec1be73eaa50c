"""The checker finds each planted anomaly, no other, and nothing in clean histories."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eos.chaos.checker.check import CHECKS, check
from eos.chaos.checker.history import AnomalyKind, Position, RunHistory
from eos.protocol import State
from tests.chaos.checker.planted import NAIVE, PLANTED, Planted, again, readers, swap
from tests.chaos.histories import clean, small

cases = pytest.mark.parametrize("case", PLANTED, ids=[case.name for case in PLANTED])


@cases
def test_a_planted_anomaly_is_found_and_no_other(case: Planted):
    found = check(case.edit(small()))
    assert {anomaly.kind for anomaly in found} == {case.kind} | case.also
    assert all(anomaly.count >= len(anomaly.examples) > 0 for anomaly in found)


@pytest.mark.parametrize(
    "kind", [kind for kind in AnomalyKind if kind is not AnomalyKind.FALSE_CLEAN]
)
def test_each_kind_is_planted_at_least_three_times(kind):
    assert sum(case.kind is kind for case in PLANTED) >= 3


@cases
def test_clean_report_with_an_anomaly_is_false_clean(case: Planted):
    found = check(replace(case.edit(small()), says_clean=True))
    assert found[-1].kind is AnomalyKind.FALSE_CLEAN
    assert case.kind.name.lower() in found[-1].examples[0]


def test_alarm_without_an_anomaly_is_a_disagreement_unless_the_job_had_to_end():
    alarm = "eos recovery verify, exit code 1: Traceback"
    (found,) = check(replace(small(), says_clean=False, alarm=alarm))
    assert found.kind is AnomalyKind.FALSE_CLEAN
    assert alarm in found.examples[0]
    assert check(replace(small(), says_clean=False, alarm=alarm, is_whole=False)) == []
    lost = next(case for case in PLANTED if case.kind is AnomalyKind.LOST_WRITE).edit(small())
    assert check(replace(lost, alarm=alarm)) == check(lost)


def test_the_small_history_is_clean():
    assert check(small()) == []
    assert check(replace(small(), says_clean=True)) == []
    assert check(NAIVE(small())) == []


def two_inputs(history: RunHistory) -> RunHistory:
    """The small history, with the second half of each epoch in another input."""
    records = (record._replace(input=record.place // 2) for record in history.records)
    return replace(history, records=tuple(records))


def test_the_order_of_two_inputs_in_one_epoch_is_left_to_spark():
    mixed = readers(swap("0/0", "0/2"))(small())
    assert {anomaly.kind for anomaly in check(mixed)} == {AnomalyKind.ORDER}
    assert check(two_inputs(mixed)) == []
    other_epoch = readers(swap("0/0", "1/2"))(small())
    assert {anomaly.kind for anomaly in check(two_inputs(other_epoch))} >= {AnomalyKind.ORDER}


def test_an_input_may_be_read_in_two_epochs_by_partition():
    history = small()
    late = {"0/0", "0/2"}  # all of one key, with the next epoch
    records = (one._replace(epoch="1") if one.id in late else one for one in history.records)
    found = check(replace(history, records=tuple(records)))
    assert AnomalyKind.ORDER not in {anomaly.kind for anomaly in found}


@pytest.mark.parametrize("seed", range(250))
def test_nothing_is_found_in_a_clean_history(seed):
    assert check(clean(seed)) == []


def test_clean_histories_have_something_in_them():
    histories = [clean(seed) for seed in range(250)]
    assert sum(len(history.fresh.sightings) for history in histories) > 2_000
    assert any(d.state is State.EMPTY for history in histories for d in history.decisions)
    assert any(d.attempt == 3 for history in histories for d in history.decisions)


def test_every_kind_has_its_check():
    assert {*CHECKS, AnomalyKind.FALSE_CLEAN} == set(AnomalyKind)
    assert [kind.number for kind in AnomalyKind] == list(range(1, 18))


def test_all_cases_are_counted_and_a_few_are_shown():
    def everything_again(sights):
        for n, record in enumerate([sight.record for sight in sights]):
            again(record, position=Position(9, n, 0))(sights)

    (anomaly,) = check(readers(everything_again)(small()))
    assert anomaly.kind is AnomalyKind.DUPLICATE
    assert (anomaly.count, len(anomaly.examples)) == (24, 5)
    assert str(anomaly).startswith("1 duplicate x24: watcher found record 0/0 at ")


def test_log_may_drop_old_epochs():
    history = small()
    thinned = replace(
        history,
        decisions=(history.decisions or ())[3:],
        decisions_again=(history.decisions or ())[3:],
        earlier=history.decisions or (),
    )
    assert [anomaly.kind for anomaly in check(thinned)] == [AnomalyKind.DECISION_FLIP]
    assert check(replace(thinned, kept_epochs=2)) == []
