"""Decides how a Pulsar transaction is brought to the end that the log holds. One pure function.

It guarantees:

- END_TXN carries only the decided action (I1, I6), and only after the mark was found.
- A transaction counts as committed only after OK, a readable receipt or readable data, and as
  expired only after a proof (I5). Everything else is unknown (I8).
- Repeating it changes nothing (I7).

If the mark is gone, an abort ends without END_TXN: an attempt that was never PREPARED can't have
been committed (I1), and its transaction expires. A PREPARED attempt has a second witness there: a
broker delivers the transaction's entries only if it is committed. Data proves a commit and never
its absence: unreadable entries may be trimmed, or the transaction may still be open.
"""

from __future__ import annotations

from typing import Final

from eos.protocol import ABORTED, COMMITTED, unknown
from eos.pulsar.end_queries import (
    Answers,
    AskData,
    AskWitness,
    DataAnswer,
    EndAction,
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


def next_end_action(answers: Answers, *, commit: bool) -> EndAction:
    """Return the next action for a transaction that the log has decided to commit or to abort."""
    is_gone = answers.mark is MarkAnswer.ABSENT
    match answers.end:
        case EndAnswer.OK if commit:
            return Ended(COMMITTED)
        case EndAnswer.ENDED if commit and not is_gone:
            return _ask_witness(answers)
        case EndAnswer.OK | EndAnswer.ENDED if not commit:
            return Ended(ABORTED)
    if is_gone:
        what = f"{_NO_MARK}; ending it by its id could end another application's transaction"
        return _ask_data(answers, what) if commit else Ended(ABORTED)
    if answers.time_is_up:
        asked = "END_TXN" if answers.end is EndAnswer.OTHER else "the receipt topic"
        return _in_doubt(f"{asked} gave no usable answer before the deadline")
    if answers.mark is not MarkAnswer.FOUND:
        return FindMark()
    return EndTransaction(commit=commit)


def _ask_data(answers: Answers, otherwise: str) -> EndAction:
    match answers.data:
        case DataAnswer.READABLE:
            return Ended(COMMITTED)
        case DataAnswer.UNPROVED:
            return _in_doubt(f"{otherwise}; and not all of its entries are readable")
    return AskData()


def _ask_witness(answers: Answers) -> EndAction:
    match answers.witness:
        case WitnessAnswer.READABLE:
            return Ended(COMMITTED)
        case WitnessAnswer.PROVED_ABSENT:
            return Ended(ABORTED)
        case WitnessAnswer.HISTORY_GONE:
            return _ask_data(answers, f"{_NO_MARK}; a missing receipt proves nothing there")
    if answers.time_is_up:
        return _in_doubt("the witness did not answer: no sentinel was read in time")
    return AskWitness()


def _in_doubt(why: str) -> Ended:
    return Ended(unknown(why))
