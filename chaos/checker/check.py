"""Finds the anomalies in the history of a run. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

from eos.chaos.checker import _log_checks as log_checks
from eos.chaos.checker import _reader_checks as reader_checks
from eos.chaos.checker.anomalies import Anomaly, AnomalyKind
from eos.chaos.checker.history import RunHistory
from eos.chaos.checker.view import View

EXAMPLES: Final = 5
"""Number of cases of each kind that are kept as text; all are counted."""

CHECKS: Final[dict[AnomalyKind, Callable[[View], Iterator[str]]]] = {
    AnomalyKind.DUPLICATE: reader_checks.duplicates,
    AnomalyKind.LOST_WRITE: reader_checks.lost_writes,
    AnomalyKind.ABORTED_READ: reader_checks.aborted_reads,
    AnomalyKind.TORN_EPOCH: reader_checks.torn_epochs,
    AnomalyKind.EARLY_READ: reader_checks.early_reads,
    AnomalyKind.CORRUPT: reader_checks.corrupt,
    AnomalyKind.MISROUTED: reader_checks.misrouted,
    AnomalyKind.ORDER: reader_checks.out_of_order,
    AnomalyKind.SKIP: reader_checks.skips,
    AnomalyKind.DISAGREEMENT: reader_checks.disagreements,
    AnomalyKind.VANISHED: reader_checks.vanished,
    AnomalyKind.DECISION_FLIP: log_checks.decision_flips,
    AnomalyKind.GAP: log_checks.gaps,
    AnomalyKind.STUCK: log_checks.stuck,
    AnomalyKind.NOT_IDEMPOTENT: log_checks.not_idempotent,
    AnomalyKind.TORN_OUTPUTS: reader_checks.torn_outputs,
}
"""Without anomaly 16, which follows from the others."""


def check(history: RunHistory) -> list[Anomaly]:
    """Return the anomalies of a run, in the order of their numbers."""
    view = View(history)
    found = [_anomaly(kind, cases(view)) for kind, cases in CHECKS.items()]
    anomalies = [anomaly for anomaly in found if anomaly is not None]
    if history.says_clean and anomalies:
        names = ", ".join(anomaly.kind.name.lower() for anomaly in anomalies)
        anomalies.append(Anomaly(AnomalyKind.FALSE_CLEAN, 1, (f"reported clean, with {names}",)))
    return anomalies


def _anomaly(kind: AnomalyKind, cases: Iterator[str]) -> Anomaly | None:
    examples = tuple(islice(cases, EXAMPLES))
    if not examples:
        return None
    return Anomaly(kind, len(examples) + sum(1 for _ in cases), examples)
