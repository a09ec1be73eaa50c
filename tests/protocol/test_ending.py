"""The decision function, in every state and for every answer."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from eos.protocol import (
    WITHOUT_TRANSACTION,
    Answers,
    AppendState,
    AskData,
    AskWitness,
    DataAnswer,
    EndAnswer,
    EndTransaction,
    FindMark,
    Finished,
    LogRecord,
    MarkAnswer,
    Reason,
    ReasonKind,
    State,
    StayInDoubt,
    WitnessAnswer,
    next_action,
)

ALL_ANSWERS = [
    Answers(*parts)
    for parts in itertools.product(MarkAnswer, EndAnswer, WitnessAnswer, DataAnswer, (False, True))
]


def record(state: State, reason: Reason | None = None) -> LogRecord:
    return LogRecord(
        sink_id="s",
        state=state,
        run_id="r",
        service_url="pulsar://b",
        receipt_topic="t",
        reason=reason,
    )


def where(kind: type) -> list[tuple[State, Answers]]:
    """All states and answers that lead to an action of ``kind``."""
    states = [state for state in State if state not in WITHOUT_TRANSACTION]
    return [
        (state, answers)
        for state, answers in itertools.product(states, ALL_ANSWERS)
        if isinstance(next_action(record(state), answers), kind)
    ]


def test_a_commit_goes_out_only_for_prepared_and_an_abort_only_for_aborting():
    seen = set()
    for state, answers in where(EndTransaction):
        seen.add((state, next_action(record(state), answers).commit))
    assert seen == {(State.PREPARED, True), (State.ABORTING, False)}


def test_nothing_is_ended_before_the_mark_was_found():
    assert {answers.mark for _, answers in where(EndTransaction)} == {MarkAnswer.FOUND}


def test_committed_is_appended_only_after_ok_a_readable_receipt_or_readable_data():
    for state, answers in where(AppendState):
        if next_action(record(state), answers) == AppendState(State.COMMITTED):
            assert state is State.PREPARED
            by_receipt = (
                answers.end is EndAnswer.ENDED and answers.witness is WitnessAnswer.READABLE
            )
            by_data = answers.data is DataAnswer.READABLE
            assert answers.end is EndAnswer.OK or by_receipt or by_data


def test_the_data_is_asked_only_where_the_receipts_history_is_gone():
    for state, answers in where(AskData):
        assert state is State.PREPARED
        lost = answers.witness is WitnessAnswer.HISTORY_GONE and answers.end is EndAnswer.ENDED
        assert answers.mark is MarkAnswer.ABSENT or lost


def test_data_that_is_not_readable_proves_nothing():
    for mark, end, witness in itertools.product(MarkAnswer, EndAnswer, WitnessAnswer):
        answers = Answers(mark=mark, end=end, witness=witness, data=DataAnswer.UNPROVED)
        unasked = replace(answers, data=DataAnswer.NOT_ASKED)
        action = next_action(record(State.PREPARED), unasked)
        if isinstance(action, AskData):
            action = next_action(record(State.PREPARED), answers)
            assert isinstance(action, StayInDoubt)


def test_expired_is_appended_only_when_the_receipt_is_proved_absent():
    expired = [
        answers
        for state, answers in where(AppendState)
        if state is State.PREPARED and next_action(record(state), answers).state is State.ABORTED
    ]
    assert expired
    for answers in expired:
        assert answers.end is EndAnswer.ENDED
        assert answers.witness is WitnessAnswer.PROVED_ABSENT


def test_the_witness_is_asked_only_after_24_or_21():
    assert {(state, answers.end) for state, answers in where(AskWitness)} == {
        (State.PREPARED, EndAnswer.ENDED)
    }


def test_an_open_transaction_is_marked_as_aborting_before_anything_else():
    for answers in ALL_ANSWERS:
        assert next_action(record(State.OPEN), answers) == AppendState(State.ABORTING)


@pytest.mark.parametrize("state", [State.COMMITTED, State.ABORTED, State.EMPTY, State.ABANDONED])
def test_a_final_record_needs_nothing(state):
    for answers in ALL_ANSWERS:
        assert next_action(record(state), answers) == Finished()


def test_no_answer_and_no_time_left_stays_in_doubt():
    silent = Answers(end=EndAnswer.OTHER, time_is_up=True)
    for state in (State.PREPARED, State.ABORTING):
        assert isinstance(next_action(record(state), silent), StayInDoubt)
        assert next_action(record(state), replace(silent, time_is_up=False)) == FindMark()


@pytest.mark.parametrize("end", [EndAnswer.NOT_ASKED, EndAnswer.OTHER])
def test_without_its_mark_a_commit_is_told_by_its_data_or_stays_in_doubt(end):
    answers = Answers(mark=MarkAnswer.ABSENT, end=end)
    assert next_action(record(State.PREPARED), answers) == AskData()
    unproved = replace(answers, data=DataAnswer.UNPROVED)
    assert isinstance(next_action(record(State.PREPARED), unproved), StayInDoubt)


@pytest.mark.parametrize("end", [EndAnswer.NOT_ASKED, EndAnswer.OTHER])
def test_without_its_mark_what_was_never_prepared_is_aborted_and_not_ended_by_number(end):
    answers = Answers(mark=MarkAnswer.ABSENT, end=end)
    assert next_action(record(State.ABORTING), answers) == AppendState(State.ABORTED)


def test_a_witness_whose_history_is_gone_proves_nothing():
    answers = Answers(
        mark=MarkAnswer.FOUND, end=EndAnswer.ENDED, witness=WitnessAnswer.HISTORY_GONE
    )
    assert next_action(record(State.PREPARED), answers) == AskData()


def test_an_aborted_transaction_without_records_makes_the_epoch_an_empty_one():
    empty = Reason(ReasonKind.EMPTY, "no records")
    answers = Answers(mark=MarkAnswer.FOUND, end=EndAnswer.OK)
    assert next_action(record(State.ABORTING, empty), answers) == AppendState(State.EMPTY)
    assert next_action(record(State.ABORTING), answers) == AppendState(State.ABORTED)


@pytest.mark.parametrize("state", sorted(WITHOUT_TRANSACTION))
def test_a_claim_and_an_epoch_without_a_transaction_are_no_transactions(state):
    with pytest.raises(ValueError, match="no transaction"):
        next_action(record(state), Answers())
