"""Pure: the history of a run in, the anomalies out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

from eos.chaos.checker import _deciding as deciding
from eos.chaos.checker import _reading as reading
from eos.chaos.checker.anomalies import Anomaly, AnomalyKind
from eos.chaos.checker.history import RunHistory
from eos.chaos.checker.view import View

EXAMPLES: Final = 5
"""So many cases of each kind are kept as text; all are counted."""

CHECKS: Final[dict[AnomalyKind, Callable[[View], Iterator[str]]]] = {
    AnomalyKind.DUPLICATE: reading.duplicates,
    AnomalyKind.LOST_WRITE: reading.lost_writes,
    AnomalyKind.ABORTED_READ: reading.aborted_reads,
    AnomalyKind.TORN_EPOCH: reading.torn_epochs,
    AnomalyKind.EARLY_READ: reading.early_reads,
    AnomalyKind.CORRUPT: reading.corrupt,
    AnomalyKind.MISROUTED: reading.misrouted,
    AnomalyKind.ORDER: reading.out_of_order,
    AnomalyKind.SKIP: reading.skips,
    AnomalyKind.DISAGREEMENT: reading.disagreements,
    AnomalyKind.VANISHED: reading.vanished,
    AnomalyKind.DECISION_FLIP: deciding.decision_flips,
    AnomalyKind.GAP: deciding.gaps,
    AnomalyKind.STUCK: deciding.stuck,
    AnomalyKind.NOT_IDEMPOTENT: deciding.not_idempotent,
    AnomalyKind.TORN_OUTPUTS: reading.torn_outputs,
}
"""Anomaly 16 is not here: it follows from the others."""


def check(history: RunHistory) -> list[Anomaly]:
    """Everything that is wrong with a run, in the order of the anomalies' numbers."""
    view = View(history)
    found = [_anomaly(kind, look(view)) for kind, look in CHECKS.items()]
    anomalies = [anomaly for anomaly in found if anomaly is not None]
    if history.says_clean and anomalies:
        names = ", ".join(anomaly.kind.name.lower() for anomaly in anomalies)
        anomalies.append(Anomaly(AnomalyKind.FALSE_CLEAN, 1, (f"clean, it says, with {names}",)))
    return anomalies


def _anomaly(kind: AnomalyKind, cases: Iterator[str]) -> Anomaly | None:
    examples = tuple(islice(cases, EXAMPLES))
    if not examples:
        return None
    return Anomaly(kind, len(examples) + sum(1 for _ in cases), examples)
