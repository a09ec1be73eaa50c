"""How an attempt that the log holds is brought to its end, whatever its participants are.

One pure function. Users of it can assume: it names commit only for PREPARED and abort only for
ABORTING (I1, I6). The first participant decides: it is the one that can expire, if any can. Nothing
of the others is committed before it is known to be, and when it has expired they are all aborted;
so no outcome is torn by a time that is over. What is not known stays in doubt (I8). Repeating it
changes nothing (I7).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from eos.protocol._reasons import ReasonKind
from eos.protocol._record import LogRecord
from eos.protocol._states import State


class Known(Enum):
    """What is known of one participant's part."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    """Ended, or expired, without a trace: proved."""
    UNKNOWN = "unknown"
    """Nobody can prove either now."""


@dataclass(frozen=True)
class Fate:
    """What became of one participant's part; ``why``: what is unknown, in words."""

    known: Known
    why: str = ""


COMMITTED: Final = Fate(Known.COMMITTED)
ABORTED: Final = Fate(Known.ABORTED)


def unknown(why: str) -> Fate:
    """Nobody can tell now, and why."""
    return Fate(Known.UNKNOWN, why)


@dataclass(frozen=True)
class EndPart:
    """Commit, or abort, the part at ``index`` of the record's participants."""

    index: int
    commit: bool


@dataclass(frozen=True)
class AppendState:
    """Append the record that follows; ``expired``: nobody here has aborted what is gone."""

    state: State
    expired: bool = False


@dataclass(frozen=True)
class StayInDoubt:
    """Nothing can be proved now: stop, and say why. ``is_lost``: the epoch is committed, and what
    one output had prepared is not there any more: only a person can go on."""

    why: str
    is_lost: bool = False


@dataclass(frozen=True)
class Finished:
    """The record is final for its attempt."""


Action = EndPart | AppendState | StayInDoubt | Finished


def next_action(record: LogRecord, fates: Sequence[Fate]) -> Action:
    """What to do about the attempt whose newest record is ``record``.

    Args:
        fates: what is known of its participants, of the first ones, in their order.

    Raises:
        ValueError: a CLAIMED or FAILED record, which is no attempt's.
    """
    match record.state:
        case State.OPEN:
            # Log first: nobody may PREPARE it any more once this append has won.
            return AppendState(State.ABORTING)
        case State.ABORTING:
            return _abort(record, fates)
        case State.PREPARED:
            return _commit(record, fates)
        case State.COMMITTED | State.ABORTED | State.EMPTY | State.ABANDONED:
            return Finished()
    raise ValueError(f"{record.state} is no attempt's state")


def _abort(record: LogRecord, fates: Sequence[Fate]) -> Action:
    """No PREPARED can follow ABORTING, so nobody commits it."""
    if len(fates) < len(record.participants):
        return EndPart(len(fates), commit=False)  # one that does not answer keeps none of them
    for part, fate in zip(record.participants, fates, strict=True):
        if fate.known is Known.UNKNOWN:
            return StayInDoubt(fate.why)
        if fate.known is Known.COMMITTED:
            return StayInDoubt(f"the log never decided to commit it, and {part.label} is committed")
    empty = record.reason is not None and record.reason.kind is ReasonKind.EMPTY
    return AppendState(State.EMPTY if empty else State.ABORTED)


def _commit(record: LogRecord, fates: Sequence[Fate]) -> Action:
    for index, fate in enumerate(fates):
        if fate.known is Known.UNKNOWN:
            return StayInDoubt(fate.why)
        if fate.known is Known.ABORTED:
            return _lost(record, index)
    if len(fates) < len(record.participants):
        return EndPart(len(fates), commit=True)
    return AppendState(State.COMMITTED)


def _lost(record: LogRecord, index: int) -> Action:
    if index:
        part, first = record.participants[index], record.participants[0]
        return StayInDoubt(
            f"{first.label} is committed, and what {part.label} had prepared is gone", is_lost=True
        )
    several = len(record.participants) > 1
    return AppendState(State.ABORTING if several else State.ABORTED, expired=True)
