"""The ten numbered steps of a commit, as data: failpoints, tests and docs derive from here.

The process may die after each step. ARCHITECTURE.md explains them.
"""

from __future__ import annotations

from enum import Enum
from typing import Final


class AnyStep(Enum):
    """One step. ``number`` is its position within its kind, ``text`` describes it."""

    def __init__(self, number: int, text: str) -> None:
        self.number = number
        self.text = text

    @property
    def label(self) -> str:
        """The name in settings, unique over all kinds: ``open``, ``task-send``, ``ending-mark``."""
        kind = type(self).__name__.removesuffix("Step").lower()
        return "-".join(filter(None, (kind, self.name.lower())))


class Step(AnyStep):
    """A step of the driver."""

    CLAIM = 1, "append CLAIMED, connect to the coordinators, end every unfinished transaction"
    DECIDE = 2, "decide from the newest record of (query, epoch): skip, resolve or run"
    BEGIN = 3, "send the mark, then NEW_TXN"
    OPEN = 4, "append OPEN"
    WRITE = (
        5,
        "Spark tasks answer the roll call, register, send, and wait for every acknowledgement",
    )
    CHECK = 6, "close the roll call: one summary per Spark partition, and no run without one"
    RECEIPT = 7, "send the receipt in the transaction"
    PREPARE = 8, "append PREPARED: the decision"
    END = 9, "END_TXN(commit), repeated until OK, 24, 21 or the deadline"
    FINISH = 10, "append COMMITTED, acknowledge the receipt topic"


class TaskStep(AnyStep):
    """A step of one Spark task, on an executor, within step 5."""

    ANSWER = 1, "connect, and answer the roll call"
    REGISTER = 2, "register the partitions that a batch touches"
    SEND = 3, "send a batch"
    SETTLE = 4, "wait for every acknowledgement, close every producer"
    REPORT = 5, "give the summary to Spark"


class EndingStep(AnyStep):
    """A step of ending a transaction, in recovery and in steps 9 and 10.

    ``Step.END`` is also one of them.
    """

    MARK = 1, "find the mark"
    ABORTING = 2, "append ABORTING"
    WITNESS = 3, "ask the witness"
    DATA = 4, "ask the second witness, the data"
    PART = 5, "end one participant's part"
    OUTCOME = 6, "append COMMITTED, ABORTED or EMPTY"


class LogStep(AnyStep):
    """A step of one append to the commit log."""

    APPEND = 1, "the record is in the table and the caller does not know it yet"


class ArchiveStep(AnyStep):
    """A step of one commit of an archive."""

    STAGE = 1, "write the files of rows"
    COMMIT = 2, "add them to the table, with the places up to which it has each partition"
    MOVE = 3, "move the subscription"


PLACES: Final[dict[str, AnyStep]] = {
    place.label: place
    for kind in (Step, TaskStep, EndingStep, LogStep, ArchiveStep)
    for place in kind
}
