"""Decides how to end an attempt in the log, for any participants. One pure function.

It names commit only for PREPARED and abort only for ABORTING (I1, I6). An unknown outcome stays in
doubt (I8). Repeating changes nothing (I7). The first participant, the one that can expire if any
can, decides for the others (I9).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from eos.protocol._part import Stage
from eos.protocol._record import LogRecord, ReasonKind
from eos.protocol._record_checks import stage_of
from eos.protocol._states import State


class Known(Enum):
    """What is known about one participant's part."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    """Ended or expired without a trace: proved."""
    UNKNOWN = "unknown"
    """Neither can be proved now."""
    OVERTAKEN = "overtaken"
    """The output has later commits of this log. The log lacks them: it is an older copy."""


@dataclass(frozen=True)
class Fate:
    """The outcome of one participant's part; ``why``: the reason if it is unknown."""

    known: Known
    why: str = ""


COMMITTED: Final = Fate(Known.COMMITTED)
ABORTED: Final = Fate(Known.ABORTED)


def unknown(why: str) -> Fate:
    """An outcome that can't be known now, and why."""
    return Fate(Known.UNKNOWN, why)


def overtaken(why: str) -> Fate:
    """An output with later commits, which ``why`` names."""
    return Fate(Known.OVERTAKEN, why)


@dataclass(frozen=True)
class EndPart:
    """Commit or abort the part at ``index`` of the record's participants."""

    index: int
    commit: bool


@dataclass(frozen=True)
class AppendState:
    """Append the next record.

    ``expired``: the deciding part has expired, or its data is gone; eos did not abort it.
    """

    state: State
    expired: bool = False


@dataclass(frozen=True)
class StayInDoubt:
    """Nothing can be proved now: stop, and say why."""

    why: str
    is_lost: bool = False
    """The epoch is committed, but one output's data is gone: only a person can resolve it."""
    is_rolled_back: bool = False
    """An output has more than the log ever decided: the log is an older copy."""


@dataclass(frozen=True)
class Finished:
    """The attempt has ended."""


Action = EndPart | AppendState | StayInDoubt | Finished


def next_action(record: LogRecord, fates: Sequence[Fate], *, is_over: bool = False) -> Action:
    """Return the next action for the attempt whose newest record is ``record``.

    Args:
        fates: the outcomes known so far, of its first participants, in their order.
        is_over: its time to live has passed.

    Raises:
        ValueError: a CLAIMED or FAILED record, which belongs to no attempt.
    """
    match record.state:
        case State.OPEN:
            # Log first: once this append has won, no other process can PREPARE it.
            return AppendState(State.ABORTING)
        case State.ABORTING:
            return _abort(record, fates, is_over=is_over)
        case State.PREPARED:
            return _commit(record, fates)
        case State.COMMITTED | State.ABORTED | State.EMPTY | State.ABANDONED:
            return Finished()
    raise ValueError(f"{record.state} does not belong to an attempt")


def _abort(record: LogRecord, fates: Sequence[Fate], *, is_over: bool) -> Action:
    # No PREPARED can follow ABORTING, so it is never committed.
    for part, fate in zip(record.participants, fates, strict=False):
        if fate.known is Known.OVERTAKEN:
            return StayInDoubt(fate.why, is_rolled_back=True)
        if fate.known is Known.COMMITTED:
            text = f"the log never decided to commit it, but {part.label} is committed"
            return StayInDoubt(text, is_rolled_back=stage_of(record) is not Stage.PREPARED)
    if len(fates) < len(record.participants):
        return EndPart(len(fates), commit=False)  # also if an earlier one did not answer
    for part, fate in zip(record.participants, fates, strict=True):
        # An expiring part needs no answer: it is never committed (I1), and its time ends it. Before
        # that, an answer frees its readers.
        if fate.known is Known.UNKNOWN and not (part.can_expire and is_over):
            return StayInDoubt(fate.why)
    empty = record.reason is not None and record.reason.kind is ReasonKind.EMPTY
    return AppendState(State.EMPTY if empty else State.ABORTED)


def _commit(record: LogRecord, fates: Sequence[Fate]) -> Action:
    # In order: the others are committed only after the first one is known to be. If it has expired,
    # all are aborted. So expiry never leaves a partly committed epoch.
    for index, fate in enumerate(fates):
        if fate.known in (Known.UNKNOWN, Known.OVERTAKEN):
            return StayInDoubt(fate.why, is_rolled_back=fate.known is Known.OVERTAKEN)
        if fate.known is Known.ABORTED:
            return _not_committed(record, index)
    if len(fates) < len(record.participants):
        return EndPart(len(fates), commit=True)
    return AppendState(State.COMMITTED)


def _not_committed(record: LogRecord, index: int) -> Action:
    if index:
        part, first = record.participants[index], record.participants[0]
        return StayInDoubt(
            f"{first.label} is committed, and what {part.label} had prepared is gone", is_lost=True
        )
    several = len(record.participants) > 1
    return AppendState(State.ABORTING if several else State.ABORTED, expired=True)
