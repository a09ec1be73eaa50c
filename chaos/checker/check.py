"""Pure: the history of a run in, the anomalies out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

from chaos.checker import deciding, reading
from chaos.checker.anomalies import Anomaly, Kind
from chaos.checker.history import RunHistory
from chaos.checker.view import View

EXAMPLES: Final = 5
"""So many cases of each kind are kept as text; all are counted."""

CHECKS: Final[dict[Kind, Callable[[View], Iterator[str]]]] = {
    Kind.DUPLICATE: reading.duplicates,
    Kind.LOST_WRITE: reading.lost_writes,
    Kind.ABORTED_READ: reading.aborted_reads,
    Kind.TORN_EPOCH: reading.torn_epochs,
    Kind.EARLY_READ: reading.early_reads,
    Kind.CORRUPT: reading.corrupt,
    Kind.MISROUTED: reading.misrouted,
    Kind.ORDER: reading.out_of_order,
    Kind.SKIP: reading.skips,
    Kind.DISAGREEMENT: reading.disagreements,
    Kind.VANISHED: reading.vanished,
    Kind.DECISION_FLIP: deciding.decision_flips,
    Kind.GAP: deciding.gaps,
    Kind.STUCK: deciding.stuck,
    Kind.NOT_IDEMPOTENT: deciding.not_idempotent,
    Kind.TORN_OUTPUTS: reading.torn_outputs,
}
"""Anomaly 16 is not here: it follows from the others."""


def check(history: RunHistory) -> list[Anomaly]:
    """Everything that is wrong with a run, in the order of the anomalies' numbers."""
    view = View(history)
    found = [_anomaly(kind, look(view)) for kind, look in CHECKS.items()]
    anomalies = [anomaly for anomaly in found if anomaly is not None]
    if history.says_clean and anomalies:
        names = ", ".join(anomaly.kind.name.lower() for anomaly in anomalies)
        anomalies.append(Anomaly(Kind.FALSE_CLEAN, 1, (f"clean, it says, with {names}",)))
    return anomalies


def _anomaly(kind: Kind, cases: Iterator[str]) -> Anomaly | None:
    examples = tuple(islice(cases, EXAMPLES))
    if not examples:
        return None
    return Anomaly(kind, len(examples) + sum(1 for _ in cases), examples)
