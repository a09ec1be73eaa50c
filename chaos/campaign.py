"""Many schedules, one after the other: resumable, cut into shards, failures shrunk."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from chaos.faults import FAULTS
from chaos.outcome import Outcome, outcome_of, schedule_of
from chaos.run import Run
from chaos.schedule import Schedule, draw
from eos.standalone import PulsarStandalone

_TRIES: Final = 2
"""A schedule does not hit the same moment each time: a smaller one may pass once and still fail."""

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Plan:
    """What to run.

    Attributes:
        workload: ``module:function``.
        seeds: one schedule each.
        faults: names to draw from.
        epochs: of each schedule.
        keep: run only these faults of each schedule, by number from 1; None: all.
        report: folder; ``schedules/<seed>.json`` and the drivers' logs of failures.
        shrink: look for the fewest faults that still fail.
    """

    workload: str
    seeds: Sequence[int]
    faults: Sequence[str]
    epochs: int
    report: Path
    keep: Sequence[int] | None = None
    shrink: bool = True

    def schedule(self, seed: int) -> Schedule:
        """The schedule of one seed."""
        schedule = draw(seed, self.faults, epochs=self.epochs)
        return schedule if self.keep is None else schedule.keep(self.keep)

    def path(self, seed: int) -> Path:
        """Where its outcome is kept."""
        return self.report / "schedules" / f"{seed}.json"

    def done(self) -> list[Outcome]:
        """The outcomes that are there. Those of other schedules are not taken for ours, and what
        broke off is to be run again."""
        found = [Outcome.read(path) for path in sorted(self.path(0).parent.glob("*.json"))]
        return [one for one in found if one.seed in self.seeds and self._is_ours(one)]

    def _is_ours(self, outcome: Outcome) -> bool:
        mine = self.schedule(outcome.seed)
        is_same = outcome.workload == self.workload and schedule_of(outcome) == mine
        return is_same and not outcome.failure

    def command(self, outcome: Outcome) -> str:
        """The one command that runs a schedule again, with the fewest faults that are known."""
        words = ["eos-chaos", "run", "--seed", str(outcome.seed), "--schedules", "1"]
        words += ["--epochs", str(self.epochs), "--workload", self.workload]
        if list(self.faults) != list(FAULTS):
            words += ["--faults", ",".join(self.faults)]
        keep = outcome.shrunk_to or self.keep
        if keep:
            words += ["--keep", ",".join(map(str, keep))]
        return " ".join(words)


def run_all(
    plan: Plan, *, tell: Tell, on_outcome: Callable[[Outcome], None], until: float | None = None
) -> None:
    """Run what is not there yet.

    Args:
        on_outcome: gets each outcome when it is there, those of an earlier run included.
        until: begin no further schedule after this ``time.monotonic()``.
    """
    plan.path(0).parent.mkdir(parents=True, exist_ok=True)
    done = {outcome.seed: outcome for outcome in plan.done()}
    with _scratch() as scratch, _Brokers() as brokers:
        for seed in plan.seeds:
            outcome = done.get(seed)
            if outcome is None:
                if until is not None and time.monotonic() > until:
                    return
                outcome = _run_one(plan, plan.schedule(seed), brokers, scratch, tell)
                if plan.shrink and not outcome.is_good:
                    outcome = _shrunk(plan, outcome, brokers, scratch, tell)
                outcome.write(plan.path(seed))
            on_outcome(outcome)


class _Brokers:
    """One broker for all schedules, and a fresh one after a failure; a context manager."""

    def __init__(self) -> None:
        self._broker: PulsarStandalone | None = None

    def get(self) -> PulsarStandalone:
        if self._broker is None:
            self._broker = PulsarStandalone().start()
        return self._broker

    def discard(self) -> None:
        broker, self._broker = self._broker, None
        if broker is not None:
            broker.stop()

    def __enter__(self) -> _Brokers:
        return self

    def __exit__(self, *_: object) -> None:
        self.discard()


@contextmanager
def _scratch() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="eos-chaos-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run_one(
    plan: Plan, schedule: Schedule, brokers: _Brokers, scratch: Path, tell: Tell
) -> Outcome:
    folder = Path(tempfile.mkdtemp(prefix=f"{schedule.seed}-", dir=scratch))
    result = Run(schedule, plan.workload, brokers.get(), folder, tell=tell).go()
    outcome = outcome_of(result, plan.workload)
    if not outcome.is_good:
        brokers.discard()
        log = folder / "driver.log"
        if log.exists():
            shutil.copy(log, plan.path(schedule.seed).with_suffix(".driver.log"))
    shutil.rmtree(folder, ignore_errors=True)
    return outcome


def _shrunk(plan: Plan, outcome: Outcome, brokers: _Brokers, scratch: Path, tell: Tell) -> Outcome:
    """Leave out one fault after the other, as long as it still fails in the same way."""
    schedule = plan.schedule(outcome.seed)
    wanted = _shape(outcome)
    numbers = list(range(1, len(schedule.faults) + 1))
    for number in list(numbers):
        fewer = [other for other in numbers if other != number]
        tell(f"shrinking seed {outcome.seed}: without fault {number} of {len(schedule.faults)}")
        for _ in range(_TRIES):
            again = _run_one(plan, schedule.keep(fewer), brokers, scratch, tell)
            if _shape(again) & wanted:
                numbers = fewer
                break
    return outcome.model_copy(update={"shrunk_to": numbers})


def _shape(outcome: Outcome) -> set[str]:
    broke_off = {"broke off"} if outcome.failure else set()
    return {anomaly.name for anomaly in outcome.anomalies} | broke_off
