"""Records with several participants, and with one of an unknown kind."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eos.commit_log import CommitLog
from eos.commit_log.schema import from_row, to_row
from eos.errors import CommitLogError
from eos.ids import MessageId
from eos.protocol import (
    History,
    LogRecord,
    Reason,
    ReasonKind,
    State,
    UnknownPart,
    check_record,
    check_successor,
)
from eos.pulsar.part import pulsar_part
from tests.protocol.epochs import EXPIRED, FAILED, add, at, changed, claim, history_of, opened, step
from tests.support.table_part import TablePart

CLAIM = replace(claim(), participants=(pulsar_part(claim()), TablePart()))


def two(record: LogRecord, **table: int) -> LogRecord:
    """The record with a table in addition."""
    return replace(record, participants=(*record.participants, TablePart(**table)))


def prepared(record: LogRecord, claimed: LogRecord, *, files: int = 2) -> LogRecord:
    """PREPARED of both."""
    topic = pulsar_part(
        step(replace(record, participants=record.participants[:1]), State.PREPARED, claimed)
    )
    table = replace(record.participants[1], files=files)
    return record.advance(State.PREPARED, claim=claimed, participants=[topic, table])


OPEN = two(opened(CLAIM), version=1)
PREPARED = prepared(OPEN, CLAIM)
COMMITTED = PREPARED.advance(State.COMMITTED, claim=CLAIM)
UNDONE = PREPARED.advance(State.ABORTING, claim=CLAIM, reason=EXPIRED)
ABORTED = UNDONE.advance(State.ABORTED, claim=CLAIM)
STRANGER = UnknownPart(kind="ledger", identity="main", output="the ledger", text='{"entry": 7}')


@pytest.mark.parametrize("record", [CLAIM, OPEN, PREPARED, COMMITTED, UNDONE, ABORTED])
def test_a_record_has_a_part_for_each(record):
    check_record(at(record, 1))
    assert from_row(to_row(at(CLAIM, 1))).participants[0] == CLAIM.participants[0]


def test_totals_are_sums_over_all_participants():
    assert (PREPARED.records, PREPARED.bytes) == (4 + 2, 300 + 2)
    with pytest.raises(CommitLogError, match="records is not the sum over the participants"):
        check_record(at(replace(PREPARED, records=4), 1))


def test_two_participants_that_can_expire_are_refused():
    both = (pulsar_part(CLAIM), replace(pulsar_part(CLAIM), receipt_topic="persistent://a/b/c"))
    with pytest.raises(CommitLogError, match=r"both expire.* the other has expired"):
        check_record(at(replace(CLAIM, participants=both), 1))


def test_the_participant_that_can_expire_comes_first():
    with pytest.raises(CommitLogError, match="not the first"):
        check_record(at(replace(CLAIM, participants=CLAIM.participants[::-1]), 1))


def test_a_participant_has_one_part():
    with pytest.raises(CommitLogError, match="is named twice"):
        check_record(at(two(two(claim())), 1))


@pytest.mark.parametrize(
    ("previous", "record"),
    [(OPEN, PREPARED), (PREPARED, COMMITTED), (PREPARED, UNDONE), (UNDONE, ABORTED)],
)
def test_after_an_expiry_the_log_aborts_the_other_parts(previous, record):
    check_successor(previous, record)


@pytest.mark.parametrize(
    ("previous", "record", "why"),
    [
        (PREPARED, PREPARED.advance(State.ABORTED, claim=CLAIM, reason=EXPIRED), "after PREPARED"),
        (PREPARED, replace(UNDONE, reason=FAILED), "only EXPIRED"),
        (PREPARED, replace(COMMITTED, participants=COMMITTED.participants[:1]), "participants"),
        (
            OPEN,
            replace(
                PREPARED, participants=(PREPARED.participants[0], TablePart(version=2, files=2))
            ),
            "another attempt",
        ),
    ],
)
def test_no_participant_is_dropped_or_swapped_between_records(previous, record, why):
    with pytest.raises(CommitLogError, match=why):
        check_successor(previous, record)


def test_a_single_expired_participant_is_aborted_at_once():
    alone = step(opened(CLAIM), State.PREPARED, CLAIM)
    check_successor(alone, alone.advance(State.ABORTED, claim=CLAIM, reason=EXPIRED))
    with pytest.raises(CommitLogError, match="after PREPARED"):
        check_successor(alone, alone.advance(State.ABORTING, claim=CLAIM, reason=EXPIRED))


def test_a_history_has_the_last_attempt_of_each_participant():
    history = history_of(CLAIM, OPEN, PREPARED, COMMITTED)
    assert history.last_begun(TablePart().key).participants[1] == PREPARED.participants[1]
    assert history.last_begun(pulsar_part(CLAIM).key).state is State.COMMITTED
    assert history.last_begun(("ledger", "main")) is None


def test_the_last_attempt_is_the_one_in_the_newest_cluster():
    """Its ledgers may have lower numbers there."""
    claimed = claim()
    there = changed(opened(claimed, "0"), cluster="there")
    prepared_there = step(there, State.PREPARED, claimed)
    done = step(prepared_there, State.COMMITTED, claimed)
    lower = MessageId(pulsar_part(there).mark_id.ledger - 1, 0)
    here = changed(opened(claimed, "1", least=8), cluster="here", mark_id=lower)
    history = history_of(claimed, there, prepared_there, done, here)
    key = pulsar_part(CLAIM).key
    assert pulsar_part(history.last_begun(key)).cluster == "here"
    assert [part.cluster for part in history.committed(key)] == ["there"]


def test_records_after_a_decision_keep_its_reason():
    decided = Reason(ReasonKind.DECIDED, "ada: the topic is gone")
    undone = PREPARED.advance(State.ABORTING, claim=CLAIM, reason=decided)
    check_successor(PREPARED, undone)
    check_successor(undone, undone.advance(State.ABORTED, claim=CLAIM))


def test_a_part_of_an_unknown_kind_survives_the_round_trip_through_a_row():
    record = at(replace(claim(), participants=(*claim().participants, STRANGER)), 1)
    check_record(record)
    assert from_row(to_row(record)) == record


def test_a_log_with_a_part_of_an_unknown_kind_is_read_and_compacted(tmp_path):
    log = CommitLog.open(tmp_path, "orders", keep_epochs=1)
    claimed = log.append(replace(claim(), participants=(*claim().participants, STRANGER)))
    log.compact()
    again = CommitLog.open_read_only(tmp_path, "orders")
    assert again.records() == [claimed]
    assert again.history.last.unknown == STRANGER


def test_participants_may_change_between_runs_but_not_the_witness():
    history = History("orders")
    add(history, claim())
    add(history, replace(CLAIM, run_id="run-2"))
    add(history, claim("run-3"))
    other = replace(pulsar_part(CLAIM), receipt_topic="persistent://a/b/c")
    with pytest.raises(CommitLogError, match="what proves"):
        add(history, replace(claim("run-4"), participants=(other, TablePart())))
