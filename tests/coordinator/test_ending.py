"""The decision function, in every state and for every answer."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from eos.coordinator import (
    Answers,
    AppendState,
    AskWitness,
    EndAnswer,
    EndTransaction,
    FindMark,
    Finished,
    MarkAnswer,
    StayInDoubt,
    WitnessAnswer,
    next_action,
)
from eos.transaction import LogRecord, Reason, ReasonKind, State

ALL_ANSWERS = [
    Answers(*parts)
    for parts in itertools.product(MarkAnswer, EndAnswer, WitnessAnswer, (False, True))
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
    states = [state for state in State if state is not State.CLAIMED]
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


def test_committed_is_appended_only_after_ok_or_a_readable_receipt():
    for state, answers in where(AppendState):
        if next_action(record(state), answers) == AppendState(State.COMMITTED):
            assert state is State.PREPARED
            proved = answers.end is EndAnswer.ENDED and answers.witness is WitnessAnswer.READABLE
            assert answers.end is EndAnswer.OK or proved


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


@pytest.mark.parametrize("state", [State.COMMITTED, State.ABORTED, State.EMPTY])
def test_a_final_record_needs_nothing(state):
    for answers in ALL_ANSWERS:
        assert next_action(record(state), answers) == Finished()


def test_no_answer_and_no_time_left_stays_in_doubt():
    silent = Answers(end=EndAnswer.OTHER, time_is_up=True)
    for state in (State.PREPARED, State.ABORTING):
        assert isinstance(next_action(record(state), silent), StayInDoubt)
        assert next_action(record(state), replace(silent, time_is_up=False)) == FindMark()


@pytest.mark.parametrize("end", [EndAnswer.NOT_ASKED, EndAnswer.OTHER])
def test_an_absent_mark_stays_in_doubt(end):
    for state in (State.PREPARED, State.ABORTING):
        answers = Answers(mark=MarkAnswer.ABSENT, end=end)
        assert isinstance(next_action(record(state), answers), StayInDoubt)


def test_a_witness_whose_history_is_gone_proves_nothing():
    answers = Answers(
        mark=MarkAnswer.FOUND, end=EndAnswer.ENDED, witness=WitnessAnswer.HISTORY_GONE
    )
    assert isinstance(next_action(record(State.PREPARED), answers), StayInDoubt)


def test_an_aborted_transaction_without_records_makes_the_epoch_an_empty_one():
    empty = Reason(ReasonKind.EMPTY, "no records")
    answers = Answers(mark=MarkAnswer.FOUND, end=EndAnswer.OK)
    assert next_action(record(State.ABORTING, empty), answers) == AppendState(State.EMPTY)
    assert next_action(record(State.ABORTING), answers) == AppendState(State.ABORTED)


def test_a_claim_is_no_transaction():
    with pytest.raises(ValueError, match="no transaction"):
        next_action(record(State.CLAIMED), Answers())
