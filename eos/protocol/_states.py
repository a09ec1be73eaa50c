"""The states of one epoch's transaction, and all transitions between them, as data.

The newest record of a (query, epoch) is the epoch's state. `CLAIMED` belongs to the sink.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple


class State(StrEnum):
    """The state that a record sets. The value is the text of the ``state`` column."""

    CLAIMED = "CLAIMED"
    """A driver's run begins: from now on only its appends are accepted. Per sink."""
    OPEN = "OPEN"
    """A transaction is open; nothing was sent in it before this record."""
    PREPARED = "PREPARED"
    """Decided: commit. Every send is acknowledged; the outcome at the broker is in doubt."""
    COMMITTED = "COMMITTED"
    """The transaction is committed. Terminal."""
    ABORTING = "ABORTING"
    """Decided: abort. END_TXN(abort) goes out only after this record."""
    ABORTED = "ABORTED"
    """The transaction is aborted or proved expired; the epoch may run again in a new one."""
    EMPTY = "EMPTY"
    """The epoch had no records; its transaction is aborted. Terminal, counts as committed."""
    FAILED = "FAILED"
    """The epoch was asked for, and failed before a transaction was opened. It must run before its
    query continues."""
    ABANDONED = "ABANDONED"
    """A person gave up the epoch's rows: its query may continue without them."""


FINAL: Final = frozenset({State.COMMITTED, State.EMPTY})
"""The epoch is done: it never runs again."""

UNFINISHED: Final = frozenset({State.OPEN, State.PREPARED, State.ABORTING})
"""The transaction may still be open at the broker: recovery must end it."""

OWING: Final = frozenset({State.ABORTED, State.FAILED})
"""Nothing of the epoch is readable, and no person has abandoned it: it must run again."""

WITHOUT_TRANSACTION: Final = frozenset({State.CLAIMED, State.FAILED})
"""Records that belong to no transaction."""


class Transition(NamedTuple):
    """One allowed step. ``source`` is None if the epoch has no record yet."""

    source: State | None
    target: State
    why: str


TRANSITIONS: Final[tuple[Transition, ...]] = (
    Transition(None, State.OPEN, "first attempt"),
    Transition(State.OPEN, State.PREPARED, "checked, receipt sent"),
    Transition(State.OPEN, State.ABORTING, "failed, empty or orphaned"),
    Transition(State.PREPARED, State.COMMITTED, "END_TXN OK, or receipt readable"),
    Transition(State.PREPARED, State.ABORTED, "expired: receipt proved absent"),
    Transition(State.PREPARED, State.ABORTING, "expired, and others are prepared"),
    Transition(State.ABORTING, State.ABORTED, "ended at the broker"),
    Transition(State.ABORTING, State.EMPTY, "ended, and there were no records"),
    Transition(State.ABORTED, State.OPEN, "next attempt"),
    Transition(None, State.FAILED, "failed before a transaction was opened"),
    Transition(State.FAILED, State.OPEN, "next attempt"),
    Transition(State.ABORTED, State.ABANDONED, "a person gave its rows up"),
    Transition(State.FAILED, State.ABANDONED, "a person gave its rows up"),
    Transition(State.ABANDONED, State.OPEN, "asked for after all"),
)
"""All steps of one (query, epoch). The log is checked against this table on write and on read."""

_ALLOWED: Final = frozenset((step.source, step.target) for step in TRANSITIONS)


def is_allowed(source: State | None, target: State) -> bool:
    """Whether an epoch's record ``target`` may follow ``source`` (None: no record yet)."""
    return (source, target) in _ALLOWED


def targets(source: State | None) -> frozenset[State]:
    """All states that may follow ``source``; empty for a terminal one."""
    return frozenset(step.target for step in TRANSITIONS if step.source is source)


def diagram() -> str:
    """The table as a Mermaid state diagram, ending in a line break."""
    lines = ["stateDiagram-v2"]
    for step in TRANSITIONS:
        source = "[*]" if step.source is None else step.source.value
        lines.append(f"    {source} --> {step.target.value}: {step.why}")
    # Enum order, not set order: the text must be the same in every process.
    lines += [f"    {state.value} --> [*]" for state in State if state in FINAL]
    return "\n".join(lines) + "\n"
