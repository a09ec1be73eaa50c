"""How a Pulsar transaction may end: the queries, their answers, and the one function that decides.

- END_TXN carries only the decided action (I1, I6), once the mark was found, or was just sent.
- A transaction counts as committed only after OK, a readable receipt or readable data, and as
  expired only after a proof (I5). Everything else is unknown (I8). Repeating changes nothing (I7).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from eos.protocol import ABORTED, COMMITTED, Fate, unknown


class MarkAnswer(Enum):
    """Whether the mark is where the log says, which proves that this is the same cluster."""

    NOT_ASKED = "not asked"
    FOUND = "found"
    ABSENT = "absent"
    UNKNOWN = "no answer"


class EndAnswer(Enum):
    """The answer to END_TXN. ENDED is code 24 or 21: it had ended, and the code hides how."""

    NOT_ASKED = "not asked"
    OK = "ok"
    ENDED = "ended before"
    OTHER = "another error, or no answer"


class WitnessAnswer(Enum):
    """Whether the receipt is readable: true if, and only if, the transaction was committed."""

    NOT_ASKED = "not asked"
    READABLE = "receipt readable"
    PROVED_ABSENT = "receipt proved absent"
    HISTORY_GONE = "the mark is gone, and with it the proof"
    UNKNOWN = "no answer"


class DataAnswer(Enum):
    """Second witness: whether every entry that PREPARED counted is delivered."""

    NOT_ASKED = "not asked"
    READABLE = "all entries readable"
    UNPROVED = "not all of them"


@dataclass(frozen=True)
class Answers:
    """The answers so far about one transaction's end, in addition to the log.

    ``time_is_up``: the deadline of the last query has passed.
    """

    mark: MarkAnswer = MarkAnswer.NOT_ASKED
    end: EndAnswer = EndAnswer.NOT_ASKED
    witness: WitnessAnswer = WitnessAnswer.NOT_ASKED
    data: DataAnswer = DataAnswer.NOT_ASKED
    time_is_up: bool = False


@dataclass(frozen=True)
class FindMark:
    """Read the mark by its message id and compare its uuid."""


@dataclass(frozen=True)
class EndTransaction:
    """END_TXN with the action that the log holds."""

    commit: bool


@dataclass(frozen=True)
class AskWitness:
    """Look for the receipt between the mark and a fresh sentinel."""


@dataclass(frozen=True)
class AskData:
    """Read the transaction's own entries, from the first to the last that the log names."""


@dataclass(frozen=True)
class Ended:
    """How the transaction ended, or that it can't be known now."""

    fate: Fate


EndAction = FindMark | EndTransaction | AskWitness | AskData | Ended


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
        # Without the mark an abort ends without END_TXN: what was never PREPARED can't have been
        # committed (I1), and its transaction expires.
        what = f"{_NO_MARK}; ending it by its id could end another application's transaction"
        return _ask_data(answers, what) if commit else Ended(ABORTED)
    if answers.time_is_up:
        asked = "END_TXN" if answers.end is EndAnswer.OTHER else "the receipt topic"
        return _in_doubt(f"{asked} gave no usable answer before the deadline")
    if answers.mark is not MarkAnswer.FOUND:
        return FindMark()
    return EndTransaction(commit=commit)


def _ask_data(answers: Answers, otherwise: str) -> EndAction:
    # Data proves a commit, never its absence: it may be trimmed, or the transaction still open.
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
