"""The queries and actions that end a Pulsar transaction, and their answers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from eos.protocol import Fate


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
