"""The seventeen anomalies; checker, tests, report and docs derive from this list."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class AnomalyKind(Enum):
    """A kind of anomaly; ``number`` and ``text`` are those of ARCHITECTURE.md."""

    DUPLICATE = 1, "a reader found the same record at two positions"
    LOST_WRITE = 2, "a record of a committed epoch is not readable"
    ABORTED_READ = 3, "a record was read from a transaction that is not its epoch's committed one"
    TORN_EPOCH = 4, "some records of an epoch are readable, others are not"
    EARLY_READ = 5, "a record was read before its epoch was PREPARED"
    CORRUPT = 6, "a record that was read is damaged, or was never written"
    MISROUTED = 7, "a record came with another topic, partition, key or schema version"
    ORDER = 8, "a key's records are readable in another order than they were written"
    SKIP = 9, "a reader went backwards, or skipped a record"
    DISAGREEMENT = 10, "two readers found different things at one position"
    VANISHED = 11, "a record that was read is no longer readable"
    DECISION_FLIP = 12, "the log holds two outcomes, or two transactions, for one epoch"
    GAP = 13, "an epoch before a committed one is undecided, or Spark and the log disagree"
    STUCK = 14, "a reader or a transaction is still blocked at the end"
    NOT_IDEMPOTENT = 15, "a second recovery changed something"
    FALSE_CLEAN = 16, "the recovery tool reports clean, but it is not"
    TORN_OUTPUTS = 17, "a record is in one output of its epoch, but not exactly once in the other"

    def __init__(self, number: int, text: str) -> None:
        self.number = number
        self.text = text


@dataclass(frozen=True)
class Anomaly:
    """The cases of one kind: their number, and the first few as lines of text."""

    kind: AnomalyKind
    count: int
    examples: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.kind.number} {self.kind.name.lower()} x{self.count}: {self.examples[0]}"
