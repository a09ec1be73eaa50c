"""The state of a whole log, and the records that may come next."""

from __future__ import annotations

import subprocess
import sys

import pytest

from eos.errors import CommitLogError
from eos.ids import TxnId
from eos.protocol import History, Reason, ReasonKind, State
from eos.pulsar.part import KIND, pulsar_part
from tests.protocol.epochs import (
    EMPTY,
    FAILED,
    QUERY,
    add,
    at,
    changed,
    claim,
    committed_epoch,
    history_of,
    numbered,
    opened,
    step,
)

CLAIM = claim()
SECOND = claim("run-2")
OPEN = opened(CLAIM)
PREPARED = step(OPEN, State.PREPARED, CLAIM)


def aborted(record, claimed=CLAIM, reason=FAILED):
    aborting = step(record, State.ABORTING, claimed, reason)
    end = State.EMPTY if reason is EMPTY else State.ABORTED
    return [aborting, step(aborting, end, claimed)]


def test_an_empty_history_has_no_records():
    history = History("orders")
    assert (history.last_seq, history.last, history.last_claim) == (0, None, None)
    assert (history.unfinished, history.parts(KIND)) == ((), ())
    assert not history.is_done(QUERY, "0")


def test_a_history_has_the_newest_record_of_each_epoch():
    history = history_of(CLAIM, *committed_epoch(CLAIM, "0"), opened(CLAIM, "1"))
    assert history.last_seq == 5
    assert history.last_claim == at(CLAIM, 1)
    assert history.newest(QUERY, "0").state is State.COMMITTED
    assert history.newest(QUERY, "1").state is State.OPEN
    assert history.newest(QUERY, "2") is None
    assert history.newest("batch", "0") is None
    (part,) = history.parts(KIND)
    assert part.identity == pulsar_part(CLAIM).receipt_topic
    assert history.streaming_queries == {QUERY}


def test_an_output_should_have_the_newest_commit_and_the_newest_with_rows():
    first, second = committed_epoch(CLAIM, "0"), committed_epoch(CLAIM, "1")
    third = opened(CLAIM, "2", least=9)
    history = history_of(CLAIM, *first, *second, third, step(third, State.PREPARED, CLAIM))
    (key,) = {part.key for part in history.parts(KIND)}
    assert set(history.committed(key)) == {pulsar_part(second[-1])}
    assert history.committed(("delta", "/t")) == ()


def test_a_persons_decision_does_not_say_that_an_output_has_the_rows():
    *begun, last = committed_epoch(CLAIM, "0")
    decided = changed(last, reason=Reason(ReasonKind.DECIDED, "ada: without it"))
    history = history_of(CLAIM, *begun, decided)
    assert history.committed(pulsar_part(last).key) == ()


@pytest.mark.parametrize("seq", [0, 1, 3])
def test_a_gap_or_a_repetition_is_refused(seq):
    history = history_of(CLAIM)
    with pytest.raises(CommitLogError, match="expected seq 2"):
        history.append(at(OPEN, seq))


def test_a_log_begins_with_a_claim():
    with pytest.raises(CommitLogError, match="no run has claimed"):
        history_of(OPEN)


def test_a_run_that_lost_its_claim_can_not_append():
    history = history_of(CLAIM, OPEN, SECOND)
    with pytest.raises(CommitLogError, match="claimed by run run-2"):
        add(history, PREPARED)


def test_a_run_claims_only_once():
    history = history_of(CLAIM, SECOND)
    with pytest.raises(CommitLogError, match="run-1 claimed the sink before"):
        add(history, claim("run-1"))


def test_records_of_another_sink_are_refused():
    with pytest.raises(CommitLogError, match="belongs to sink 'other'"):
        add(History("orders"), claim(sink_id="other"))


def test_the_witness_of_a_log_never_changes():
    history = history_of(CLAIM)
    with pytest.raises(CommitLogError, match="what proves"):
        add(history, changed(SECOND, receipt_topic="persistent://other/default/receipts"))


def test_a_record_is_checked_on_its_own_and_against_its_epoch():
    history = history_of(CLAIM, OPEN)
    with pytest.raises(CommitLogError, match="receipt_id is missing"):
        add(history, changed(PREPARED, receipt_id=None))
    with pytest.raises(CommitLogError, match="after OPEN comes"):
        add(history, step(PREPARED, State.COMMITTED, CLAIM))


def test_a_refused_record_changes_nothing():
    history = history_of(CLAIM, OPEN)
    with pytest.raises(CommitLogError):
        add(history, step(PREPARED, State.COMMITTED, CLAIM))
    assert history.last_seq == 2
    assert history.newest(QUERY, "0").state is State.OPEN
    add(history, PREPARED)
    assert history.unfinished == (at(PREPARED, 3),)


def test_unfinished_epochs_come_in_the_order_of_the_log():
    first, second = opened(CLAIM, "a", query_id="batch"), opened(CLAIM, "b", query_id="batch")
    history = history_of(CLAIM, second, first, step(second, State.ABORTING, CLAIM, FAILED))
    assert [(r.epoch, r.state) for r in history.unfinished] == [
        ("a", State.OPEN),
        ("b", State.ABORTING),
    ]


@pytest.mark.parametrize("reason", [FAILED, EMPTY])
def test_an_ended_epoch_is_no_longer_unfinished(reason):
    history = history_of(CLAIM, OPEN, *aborted(OPEN, reason=reason))
    assert history.unfinished == ()
    assert history.is_done(QUERY, "0") == (reason is EMPTY)


def test_the_last_committed_epoch_compares_as_a_number_and_counts_empty_ones():
    history = history_of(CLAIM, *committed_epoch(CLAIM, "9"))
    tenth = opened(CLAIM, "10")
    for record in (tenth, *aborted(tenth, reason=EMPTY)):
        add(history, record)
    assert history.last_committed_epoch(QUERY) == 10
    assert history.last_committed_epoch("other") is None


def test_an_epoch_below_the_last_committed_one_is_done_even_without_its_record():
    history = history_of(CLAIM, *committed_epoch(CLAIM, "9"))
    assert history.is_done(QUERY, "8")
    assert history.is_done(QUERY, "9")
    assert not history.is_done(QUERY, "10")
    assert not history.is_done("other-query", "8")


def test_an_epoch_below_the_last_committed_one_is_never_opened_again():
    history = history_of(CLAIM, *committed_epoch(CLAIM, "9"))
    with pytest.raises(CommitLogError, match="epoch 9 of the query is committed"):
        add(history, opened(CLAIM, "8"))


def test_an_aborted_epoch_that_a_later_one_passed_does_not_count_as_done():
    history = history_of(CLAIM, OPEN, *aborted(OPEN), *committed_epoch(CLAIM, "1"))
    assert not history.is_done(QUERY, "0")


def test_batch_keys_only_compare_as_equal_or_not():
    history = history_of(CLAIM, *committed_epoch(CLAIM, "9", query_id="batch"))
    assert history.is_done("batch", "9")
    assert not history.is_done("batch", "8")
    assert not history.is_done("batch", "09")
    assert history.streaming_queries == frozenset()
    assert history.last_committed_epoch("batch") is None
    add(history, opened(CLAIM, "8", query_id="batch"))


def test_a_new_run_opens_no_epoch_until_every_transaction_is_ended():
    left = opened(CLAIM, "key", query_id="batch")
    history = history_of(CLAIM, left, SECOND)
    with pytest.raises(CommitLogError, match="epoch key of an earlier run is unfinished"):
        add(history, opened(SECOND))
    for record in (*aborted(left, SECOND), opened(SECOND)):
        add(history, record)


def test_a_query_has_one_transaction_at_a_time():
    history = history_of(CLAIM, OPEN, PREPARED)
    with pytest.raises(CommitLogError, match="epoch 0 of the query is unfinished"):
        add(history, opened(CLAIM, "1"))


def test_recovery_by_a_later_run_ends_what_an_earlier_one_left():
    history = history_of(CLAIM, OPEN, PREPARED, SECOND)
    add(history, step(PREPARED, State.COMMITTED, SECOND))
    assert history.is_done(QUERY, "0")
    assert history.newest(QUERY, "0").run_id == "run-2"


def test_every_coordinator_that_the_log_names_is_known():
    other = changed(opened(CLAIM, "1"), txn=TxnId(5, 0))
    history = history_of(CLAIM, *committed_epoch(CLAIM, "0"), other)
    assert history.anchors(pulsar_part(CLAIM).key) == {3, 5}


def test_a_history_built_at_once_equals_one_grown_record_by_record():
    records = numbered([CLAIM, OPEN, *aborted(OPEN), opened(CLAIM, attempt=2), SECOND])
    grown = History("orders")
    for record in records:
        grown.append(record)
    built = History.of("orders", iter(records))
    assert vars(built) == vars(grown)
    assert [record.attempt for record in built.unfinished] == [2]


def test_records_need_no_delta_no_arrow_and_no_broker():
    code = (
        "import sys\n"
        "for name in ('deltalake', 'pyarrow', 'pydantic', 'pulsar', 'pyspark', 'numpy'):\n"
        "    sys.modules[name] = None\n"
        "import eos.protocol"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
