"""The ten numbered steps of a commit, as data: failpoints, tests and docs derive from here.

Each is a place behind which the process may die. ARCHITECTURE.md says what each one is for.
"""

from __future__ import annotations

from enum import Enum


class Step(Enum):
    """One step; ``value`` is its number, ``text`` what it does."""

    CLAIM = 1, "append CLAIMED, connect to the coordinators, end every unfinished transaction"
    DECIDE = 2, "decide from the newest record of (query, epoch): skip, resolve or run"
    BEGIN = 3, "send the mark, then NEW_TXN"
    OPEN = 4, "append OPEN"
    WRITE = 5, "Spark tasks register partitions, send, and wait for every receipt"
    CHECK = 6, "one summary per Spark partition, attempt 0, the stage ran once"
    RECEIPT = 7, "send the receipt in the transaction"
    PREPARE = 8, "append PREPARED: the decision"
    END = 9, "END_TXN(commit), repeated until OK, 24, 21 or the deadline"
    FINISH = 10, "append COMMITTED, acknowledge the receipt topic"

    def __init__(self, number: int, text: str) -> None:
        self.number = number
        self.text = text
