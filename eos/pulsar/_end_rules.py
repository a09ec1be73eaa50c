"""How a Pulsar transaction is brought to the end that the log has decided.

One pure function. Users of it can assume: it names END_TXN only with the action that was decided
(I1, I6), and only after the mark was found; it calls a transaction committed only after OK, a
readable receipt or its readable data, and expired only after a proof (I5), and whatever is not
proved is unknown (I8). Repeating it changes nothing (I7).

Where the mark is gone, an abort ends without END_TXN: what was never PREPARED can't have been
committed (I1), and its transaction expires by itself. PREPARED has a second witness there: a broker
delivers the transaction's entries only when it is committed. They prove a commit and never its
absence: what is not readable may be trimmed, or open still.
"""

from __future__ import annotations

from typing import Final

from eos.protocol import ABORTED, COMMITTED, unknown
from eos.pulsar.end_queries import (
    Answers,
    AskData,
    Asking,
    AskWitness,
    DataAnswer,
    EndAnswer,
    Ended,
    EndTransaction,
    FindMark,
    MarkAnswer,
    WitnessAnswer,
)

_NO_MARK: Final = (
    "the mark is not in the receipt topic: this is another cluster, or the topic was trimmed, "
    "deleted or wiped"
)


def next_asking(answers: Answers, *, commit: bool) -> Asking:
    """What to do about a transaction that the log has decided to ``commit``, or else to abort."""
    is_gone = answers.mark is MarkAnswer.ABSENT
    match answers.end:
        case EndAnswer.OK if commit:
            return Ended(COMMITTED)
        case EndAnswer.ENDED if commit and not is_gone:
            return _ask_witness(answers)
        case EndAnswer.OK | EndAnswer.ENDED if not commit:
            return Ended(ABORTED)
    if is_gone:
        what = f"{_NO_MARK}; ending a transaction by its number could end a stranger's"
        return _ask_data(answers, what) if commit else Ended(ABORTED)
    if answers.time_is_up:
        asked = "END_TXN" if answers.end is EndAnswer.OTHER else "the receipt topic"
        return _silent(f"{asked} gave no usable answer before the deadline")
    if answers.mark is not MarkAnswer.FOUND:
        return FindMark()
    return EndTransaction(commit=commit)


def _ask_data(answers: Answers, otherwise: str) -> Asking:
    match answers.data:
        case DataAnswer.READABLE:
            return Ended(COMMITTED)
        case DataAnswer.UNPROVED:
            return _silent(f"{otherwise}; and not all of its entries are readable")
    return AskData()


def _ask_witness(answers: Answers) -> Asking:
    match answers.witness:
        case WitnessAnswer.READABLE:
            return Ended(COMMITTED)
        case WitnessAnswer.PROVED_ABSENT:
            return Ended(ABORTED)
        case WitnessAnswer.HISTORY_GONE:
            return _ask_data(answers, f"{_NO_MARK}; a missing receipt proves nothing there")
    if answers.time_is_up:
        return _silent("the witness could not be heard: no sentinel was read in time")
    return AskWitness()


def _silent(why: str) -> Ended:
    return Ended(unknown(why))
