"""How a transaction that the log holds is brought to its end.

One pure function. Users of it can assume: it names END_TXN(commit) only for PREPARED and
END_TXN(abort) only for ABORTING (I1, I6), it names either only after the mark was found, it calls
a transaction committed only after OK, a readable receipt or its readable data, and expired only
after a proof (I5), and whatever is not proved stays in doubt (I8). Repeating it changes nothing
(I7).

Where the mark is gone, ABORTING ends without END_TXN: what was never PREPARED can't have been
committed (I1), and its transaction expires by itself. PREPARED has a second witness there: a broker
delivers the transaction's entries only when it is committed. They prove a commit and never its
absence: what is not readable may be trimmed, or open still.
"""

from __future__ import annotations

from typing import Final

from eos.protocol.actions import (
    Action,
    Answers,
    AppendState,
    AskData,
    AskWitness,
    DataAnswer,
    EndAnswer,
    EndTransaction,
    FindMark,
    Finished,
    MarkAnswer,
    StayInDoubt,
    WitnessAnswer,
)
from eos.protocol.reasons import ReasonKind
from eos.protocol.record import LogRecord
from eos.protocol.states import State

_NO_MARK: Final = (
    "the mark is not in the receipt topic: this is another cluster, or the topic was trimmed, "
    "deleted or wiped"
)


def next_action(record: LogRecord, answers: Answers) -> Action:
    """What to do about the transaction whose newest record is ``record``, given ``answers``.

    Raises:
        ValueError: a CLAIMED or FAILED record, which is no transaction's.
    """
    match record.state:
        case State.OPEN:
            # Log first: nobody may PREPARE it any more once this append has won.
            return AppendState(State.ABORTING)
        case State.ABORTING | State.PREPARED:
            return _end(record, answers)
        case State.COMMITTED | State.ABORTED | State.EMPTY | State.ABANDONED:
            return Finished()
    raise ValueError(f"{record.state} is no transaction's state")


def _end(record: LogRecord, answers: Answers) -> Action:
    commit = record.state is State.PREPARED
    is_gone = answers.mark is MarkAnswer.ABSENT
    match answers.end:
        case EndAnswer.OK if commit:
            return AppendState(State.COMMITTED)
        case EndAnswer.ENDED if commit and not is_gone:
            return _ask_witness(answers)
        case EndAnswer.OK | EndAnswer.ENDED if not commit:
            return _aborted(record)
    if is_gone:
        what = f"{_NO_MARK}; ending a transaction by its number could end a stranger's"
        return _ask_data(answers, what) if commit else _aborted(record)
    if answers.time_is_up:
        asked = "END_TXN" if answers.end is EndAnswer.OTHER else "the receipt topic"
        return StayInDoubt(f"{asked} gave no usable answer before the deadline")
    if answers.mark is not MarkAnswer.FOUND:
        return FindMark()
    return EndTransaction(commit=commit)


def _aborted(record: LogRecord) -> Action:
    """No PREPARED can follow ABORTING, so nobody committed it: it is gone, or will expire."""
    empty = record.reason is not None and record.reason.kind is ReasonKind.EMPTY
    return AppendState(State.EMPTY if empty else State.ABORTED)


def _ask_data(answers: Answers, otherwise: str) -> Action:
    match answers.data:
        case DataAnswer.READABLE:
            return AppendState(State.COMMITTED)
        case DataAnswer.UNPROVED:
            return StayInDoubt(f"{otherwise}; and not all of its entries are readable")
    return AskData()


def _ask_witness(answers: Answers) -> Action:
    match answers.witness:
        case WitnessAnswer.READABLE:
            return AppendState(State.COMMITTED)
        case WitnessAnswer.PROVED_ABSENT:
            return AppendState(State.ABORTED, expired=True)
        case WitnessAnswer.HISTORY_GONE:
            return _ask_data(answers, f"{_NO_MARK}; a missing receipt proves nothing there")
    if answers.time_is_up:
        return StayInDoubt("the witness could not be heard: no sentinel was read in time")
    return AskWitness()
