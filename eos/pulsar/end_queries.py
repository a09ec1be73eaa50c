"""The vocabulary of ending a Pulsar transaction: what can be asked, answered and done."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from eos.protocol import Fate


class MarkAnswer(Enum):
    """Is the mark where the log says? It proves that this is the cluster of the transaction."""

    NOT_ASKED = "not asked"
    FOUND = "found"
    ABSENT = "absent"
    UNKNOWN = "no answer"


class EndAnswer(Enum):
    """What END_TXN said. ENDED is code 24 or 21: over before, how is not told."""

    NOT_ASKED = "not asked"
    OK = "ok"
    ENDED = "ended before"
    OTHER = "another error, or no answer"


class WitnessAnswer(Enum):
    """Is the receipt readable? It is if, and only if, the transaction was committed."""

    NOT_ASKED = "not asked"
    READABLE = "receipt readable"
    PROVED_ABSENT = "receipt proved absent"
    HISTORY_GONE = "the mark is gone, and with it the proof"
    UNKNOWN = "no answer"


class DataAnswer(Enum):
    """Is every entry that PREPARED counted delivered, as the transaction's? The second witness."""

    NOT_ASKED = "not asked"
    READABLE = "all entries readable"
    UNPROVED = "not all of them"


@dataclass(frozen=True)
class Answers:
    """What is known about one transaction's end besides the log.

    ``time_is_up``: the deadline for whatever was asked last has passed.
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
    """What became of the transaction, or that nobody can tell now."""

    fate: Fate


Asking = FindMark | EndTransaction | AskWitness | AskData | Ended
