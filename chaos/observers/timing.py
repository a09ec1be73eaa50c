"""Recovery times of the job and its readers."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from eos.chaos.checker.history import RunHistory
from eos.chaos.checker.view import View

if TYPE_CHECKING:
    from eos.chaos.cluster.target import FaultTarget


@dataclass
class Timing:
    """Times in seconds, until the next committed epoch.

    Attributes:
        driver_restart_s: since the restart of a driver.
        broker_restart_s: since a restarted broker was ready.
        failover_s: since a part of a cluster was hit.
        reader_stall_s: for each epoch, since its COMMITTED record until a watching reader had it.
    """

    driver_restart_s: list[float] = field(default_factory=list)
    broker_restart_s: list[float] = field(default_factory=list)
    failover_s: list[float] = field(default_factory=list)
    reader_stall_s: list[float] = field(default_factory=list)


def timing_of(history: RunHistory, target: FaultTarget) -> Timing:
    """Measure a finished run."""
    view = View(history)
    committed_at = sorted(decision.at for decision in view.committed.values())

    def until_next(starts: list[float]) -> list[float]:
        places = [(start, bisect_right(committed_at, start)) for start in starts]
        return [committed_at[n] - start for start, n in places if n < len(committed_at)]

    complete: dict[str, float] = {}
    for reader in history.readers:
        for sight, record in view.known_sights(reader):
            complete[record.epoch] = max(sight.at, complete.get(record.epoch, 0.0))
    return Timing(
        driver_restart_s=until_next(target.supervisor.restarted_at),
        broker_restart_s=until_next(target.broker_back_at),
        failover_s=until_next(target.struck_at),
        reader_stall_s=[
            max(0.0, at - view.committed[epoch].at)
            for epoch, at in complete.items()
            if epoch in view.committed
        ],
    )
