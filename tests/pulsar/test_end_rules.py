"""What is asked and done about a Pulsar transaction, in every state and for every answer."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from eos.protocol import ABORTED, COMMITTED, Known
from eos.pulsar._end_rules import next_asking
from eos.pulsar.end_queries import (
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
)

ALL_ANSWERS = [
    Answers(*parts)
    for parts in itertools.product(MarkAnswer, EndAnswer, WitnessAnswer, DataAnswer, (False, True))
]


def where(kind: type) -> list[tuple[bool, Answers]]:
    """All decisions (commit or abort) and answers that lead to an asking of ``kind``."""
    return [
        (commit, answers)
        for commit, answers in itertools.product((True, False), ALL_ANSWERS)
        if isinstance(next_asking(answers, commit=commit), kind)
    ]


def ended(known: Known) -> list[tuple[bool, Answers]]:
    return [
        (commit, answers)
        for commit, answers in where(Ended)
        if next_asking(answers, commit=commit).fate.known is known
    ]


def is_in_doubt(answers: Answers, *, commit: bool = True) -> bool:
    asking = next_asking(answers, commit=commit)
    return isinstance(asking, Ended) and asking.fate.known is Known.UNKNOWN


def test_end_txn_carries_what_was_decided():
    assert {
        (commit, next_asking(answers, commit=commit).commit)
        for commit, answers in where(EndTransaction)
    } == {(True, True), (False, False)}


def test_nothing_is_ended_before_the_mark_was_found():
    assert {answers.mark for _, answers in where(EndTransaction)} == {MarkAnswer.FOUND}


def test_committed_is_told_only_by_ok_a_readable_receipt_or_readable_data():
    found = ended(Known.COMMITTED)
    assert found
    for commit, answers in found:
        assert commit
        by_receipt = answers.end is EndAnswer.ENDED and answers.witness is WitnessAnswer.READABLE
        by_data = answers.data is DataAnswer.READABLE
        assert answers.end is EndAnswer.OK or by_receipt or by_data


def test_the_data_is_asked_only_where_the_receipts_history_is_gone():
    for commit, answers in where(AskData):
        assert commit
        lost = answers.witness is WitnessAnswer.HISTORY_GONE and answers.end is EndAnswer.ENDED
        assert answers.mark is MarkAnswer.ABSENT or lost


def test_data_that_is_not_readable_proves_nothing():
    for mark, end, witness in itertools.product(MarkAnswer, EndAnswer, WitnessAnswer):
        answers = Answers(mark=mark, end=end, witness=witness, data=DataAnswer.UNPROVED)
        unasked = replace(answers, data=DataAnswer.NOT_ASKED)
        if isinstance(next_asking(unasked, commit=True), AskData):
            assert is_in_doubt(answers)


def test_expired_is_told_only_by_a_receipt_that_is_proved_absent():
    expired = [answers for commit, answers in ended(Known.ABORTED) if commit]
    assert expired
    for answers in expired:
        assert answers.end is EndAnswer.ENDED
        assert answers.witness is WitnessAnswer.PROVED_ABSENT


def test_the_witness_is_asked_only_after_24_or_21():
    assert {(commit, answers.end) for commit, answers in where(AskWitness)} == {
        (True, EndAnswer.ENDED)
    }


def test_no_answer_and_no_time_left_is_unknown():
    silent = Answers(end=EndAnswer.OTHER, time_is_up=True)
    for commit in (True, False):
        assert is_in_doubt(silent, commit=commit)
        assert next_asking(replace(silent, time_is_up=False), commit=commit) == FindMark()


@pytest.mark.parametrize("end", [EndAnswer.NOT_ASKED, EndAnswer.OTHER])
def test_without_its_mark_a_commit_is_told_by_its_data_or_stays_in_doubt(end):
    answers = Answers(mark=MarkAnswer.ABSENT, end=end)
    assert next_asking(answers, commit=True) == AskData()
    assert is_in_doubt(replace(answers, data=DataAnswer.UNPROVED))
    readable = replace(answers, data=DataAnswer.READABLE)
    assert next_asking(readable, commit=True) == Ended(COMMITTED)


@pytest.mark.parametrize("end", [EndAnswer.NOT_ASKED, EndAnswer.OTHER])
def test_without_its_mark_what_was_never_prepared_is_aborted_and_not_ended_by_number(end):
    answers = Answers(mark=MarkAnswer.ABSENT, end=end)
    assert next_asking(answers, commit=False) == Ended(ABORTED)


def test_a_witness_whose_history_is_gone_proves_nothing():
    answers = Answers(
        mark=MarkAnswer.FOUND, end=EndAnswer.ENDED, witness=WitnessAnswer.HISTORY_GONE
    )
    assert next_asking(answers, commit=True) == AskData()
