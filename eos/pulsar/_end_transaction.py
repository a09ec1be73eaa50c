"""Performs what ``end_rules`` decides: asks and acts until the transaction's end is known."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from eos import failpoints
from eos.protocol import Fate
from eos.pulsar.end_rules import (
    Answers,
    AskData,
    AskWitness,
    EndAnswer,
    Ended,
    EndTransaction,
    FindMark,
    MarkAnswer,
    WitnessAnswer,
    next_end_action,
)
from eos.pulsar.part import PulsarPart
from eos.pulsar.witness import Witness
from eos.retry import Patience
from eos.steps import EndingStep, Step


class SendEndTxn(Protocol):
    """Sends END_TXN once."""

    def __call__(self, part: PulsarPart, *, commit: bool, timeout_s: float) -> EndAnswer:
        """Return the coordinator's answer."""


def end_transaction(
    part: PulsarPart,
    witness: Witness,
    end_txn: SendEndTxn,
    *,
    commit: bool,
    deadline_s: float,
    is_own: bool,
) -> Fate:
    """End the transaction as the log has decided, or find out how it ended.

    Args:
        deadline_s: for finding the mark and END_TXN together, and then again for the witness.
        is_own: this process has just seen every send acknowledged, so the mark is not read again.
    """
    known = Answers(mark=MarkAnswer.FOUND) if is_own else Answers()
    patience = Patience(deadline_s)
    while True:
        match next_end_action(known, commit=commit):
            case Ended(fate):
                return fate
            case FindMark():
                mark = witness.find_mark(part, timeout_s=patience.left_s)
                failpoints.reached(EndingStep.MARK)
                known = replace(known, mark=mark)
                if mark is MarkAnswer.UNKNOWN:
                    known = _wait(known, patience)
            case EndTransaction():
                end = end_txn(part, commit=commit, timeout_s=patience.left_s)
                failpoints.reached(Step.END)
                known = replace(known, end=end)
                if end is EndAnswer.OTHER:
                    # By the next try the broker may be another one.
                    known = _wait(replace(known, mark=MarkAnswer.NOT_ASKED), patience)
                else:
                    patience = Patience(deadline_s)
            case AskWitness():
                answer = witness.ask(part, timeout_s=patience.left_s)
                failpoints.reached(EndingStep.WITNESS)
                known = replace(known, witness=answer)
                if answer is WitnessAnswer.UNKNOWN:
                    known = _wait(known, patience)
            case AskData():
                data = witness.ask_data(part, timeout_s=patience.left_s)
                failpoints.reached(EndingStep.DATA)
                known = replace(known, data=data)


def _wait(known: Answers, patience: Patience) -> Answers:
    patience.pause()
    return replace(known, time_is_up=patience.is_over)
