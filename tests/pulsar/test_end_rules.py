"""The rules that end a Pulsar transaction, in every state and for every answer."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from eos.protocol import ABORTED, COMMITTED, Known
from eos.pulsar.end_rules import (
    Answers,
    AskData,
    AskWitness,
    DataAnswer,
    EndAnswer,
    Ended,
    EndTransaction,
    FindMark,
    MarkAnswer,
    WitnessAnswer,
    next_end_action,
)

ALL_ANSWERS = [
    Answers(*parts)
    for parts in itertools.product(MarkAnswer, EndAnswer, WitnessAnswer, DataAnswer, (False, True))
]


def where(kind: type) -> list[tuple[bool, Answers]]:
    """All decisions (commit or abort) and answers that lead to an action of ``kind``."""
    return [
        (commit, answers)
        for commit, answers in itertools.product((True, False), ALL_ANSWERS)
        if isinstance(next_end_action(answers, commit=commit), kind)
    ]


def ended(known: Known) -> list[tuple[bool, Answers]]:
    return [
        (commit, answers)
        for commit, answers in where(Ended)
        if next_end_action(answers, commit=commit).fate.known is known
    ]


def is_in_doubt(answers: Answers, *, commit: bool = True) -> bool:
    action = next_end_action(answers, commit=commit)
    return isinstance(action, Ended) and action.fate.known is Known.UNKNOWN


def test_end_txn_carries_the_decided_action():
    assert {
        (commit, next_end_action(answers, commit=commit).commit)
        for commit, answers in where(EndTransaction)
    } == {(True, True), (False, False)}


def test_end_txn_is_sent_only_after_the_mark_was_found():
    assert {answers.mark for _, answers in where(EndTransaction)} == {MarkAnswer.FOUND}


def test_only_ok_a_readable_receipt_or_readable_data_mean_committed():
    found = ended(Known.COMMITTED)
    assert found
    for commit, answers in found:
        assert commit
        by_receipt = answers.end is EndAnswer.ENDED and answers.witness is WitnessAnswer.READABLE
        by_data = answers.data is DataAnswer.READABLE
        assert answers.end is EndAnswer.OK or by_receipt or by_data


def test_the_data_is_read_only_if_the_receipts_history_is_gone():
    for commit, answers in where(AskData):
        assert commit
        lost = answers.witness is WitnessAnswer.HISTORY_GONE and answers.end is EndAnswer.ENDED
        assert answers.mark is MarkAnswer.ABSENT or lost


def test_unreadable_data_proves_nothing():
    for mark, end, witness in itertools.product(MarkAnswer, EndAnswer, WitnessAnswer):
        answers = Answers(mark=mark, end=end, witness=witness, data=DataAnswer.UNPROVED)
        unasked = replace(answers, data=DataAnswer.NOT_ASKED)
        if isinstance(next_end_action(unasked, commit=True), AskData):
            assert is_in_doubt(answers)


def test_only_a_proved_absence_of_the_receipt_means_expired():
    expired = [answers for commit, answers in ended(Known.ABORTED) if commit]
    assert expired
    for answers in expired:
        assert answers.end is EndAnswer.ENDED
        assert answers.witness is WitnessAnswer.PROVED_ABSENT


def test_the_witness_is_asked_only_after_24_or_21():
    assert {(commit, answers.end) for commit, answers in where(AskWitness)} == {
        (True, EndAnswer.ENDED)
    }


def test_no_answer_before_the_deadline_is_unknown():
    silent = Answers(end=EndAnswer.OTHER, time_is_up=True)
    for commit in (True, False):
        assert is_in_doubt(silent, commit=commit)
        assert next_end_action(replace(silent, time_is_up=False), commit=commit) == FindMark()


@pytest.mark.parametrize("end", [EndAnswer.NOT_ASKED, EndAnswer.OTHER])
def test_without_its_mark_a_commit_is_proved_by_its_data_or_stays_in_doubt(end):
    answers = Answers(mark=MarkAnswer.ABSENT, end=end)
    assert next_end_action(answers, commit=True) == AskData()
    assert is_in_doubt(replace(answers, data=DataAnswer.UNPROVED))
    readable = replace(answers, data=DataAnswer.READABLE)
    assert next_end_action(readable, commit=True) == Ended(COMMITTED)


@pytest.mark.parametrize("end", [EndAnswer.NOT_ASKED, EndAnswer.OTHER])
def test_without_its_mark_an_unprepared_attempt_is_aborted_without_end_txn(end):
    answers = Answers(mark=MarkAnswer.ABSENT, end=end)
    assert next_end_action(answers, commit=False) == Ended(ABORTED)


def test_a_witness_whose_history_is_gone_proves_nothing():
    answers = Answers(
        mark=MarkAnswer.FOUND, end=EndAnswer.ENDED, witness=WitnessAnswer.HISTORY_GONE
    )
    assert next_end_action(answers, commit=True) == AskData()
