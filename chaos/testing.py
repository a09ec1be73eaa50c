"""The Python API: run a job under faults, and check the result."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path

from eos.chaos._run import Result, ScheduleRun, needs_store
from eos.chaos._run_options import wanted_faults
from eos.chaos.checker.history import NO_LOG
from eos.chaos.cluster.target import PulsarHolder
from eos.chaos.job import load
from eos.chaos.planning import FEWEST_EPOCHS, draw, is_empty
from eos.chaos.schedule import Schedule
from eos.errors import ConfigurationError


class ChaosCluster:
    """Starts a broker with the first run; a context manager.

    Args:
        folder: for the jobs' files and logs; created if missing.
        brokers: with more than 1, a cluster, with more kinds of faults.
    """

    def __init__(self, folder: Path, *, brokers: int = 1) -> None:
        # Drivers may run in another working directory.
        self._folder = folder.absolute()
        self._count = brokers
        self._pulsar = PulsarHolder()

    def __enter__(self) -> ChaosCluster:
        return self

    def __exit__(self, *_: object) -> None:
        self._pulsar.close()

    def run(
        self,
        workload: str = "eos.chaos.workloads:stream",
        *,
        seed: int = 1,
        faults: Sequence[str] | None = None,
        epochs: int = 24,
    ) -> Result:
        """Draw the schedule of ``seed`` and run it.

        Args:
            workload: ``module:function``; see ``eos.chaos.job``.
            faults: names to draw from (``eos chaos faults`` lists them); None for all that can be
                combined.

        Raises:
            ConfigurationError: the workload or fault does not exist, the fault can't be drawn, or
                there are too few epochs.
        """
        if epochs < FEWEST_EPOCHS:
            raise ConfigurationError(f"epochs must be at least {FEWEST_EPOCHS}, not {epochs}.")
        text = "all" if faults is None else ",".join(faults)
        names = wanted_faults(text, workload, brokers=self._count)
        schedule = draw(seed, names, epochs=epochs, brokers=self._count)
        if is_empty(schedule, names):
            raise ConfigurationError(
                f"Seed {seed} draws none of the faults {text}, nor a condition that they need.",
                hint="Use another seed.",
            )
        return self.run_schedule(schedule, workload)

    def run_schedule(
        self,
        schedule: Schedule,
        workload: str = "eos.chaos.workloads:stream",
        *,
        project: Path | None = None,
    ) -> Result:
        """Run your own schedule.

        Args:
            project: working directory of the driver; that of this process if None.

        Raises:
            ConfigurationError: the workload does not exist.
        """
        load(workload)
        self._folder.mkdir(parents=True, exist_ok=True)
        broker = self._pulsar.get(self._count, is_tiered=needs_store(schedule))
        folder = Path(tempfile.mkdtemp(prefix=f"{schedule.seed}-", dir=self._folder))
        result = ScheduleRun(
            schedule,
            workload,
            broker,
            folder,
            tell=lambda _: None,
            project=project,
            store=self._pulsar.store,
        ).go()
        if not result.is_good:
            self._pulsar.discard()  # as a campaign does: the failure may be the broker's
        return result


def check_exactly_once(result: Result) -> None:
    """Check that the run finished, nothing is wrong, and a fault has hit if there was any.

    Warns of a job without a commit log, as some checks need one.

    Raises:
        AssertionError: with the anomalies and the faults.
    """
    schedule = result.schedule
    hits = [one.hit for one in result.happened] if schedule.faults else result.met.values()
    has_hit = any(hits) or not (schedule.faults or schedule.conditions)
    if result.is_good and has_hit:
        if result.history is not None and not result.history.has_log:
            warnings.warn(f"checked {NO_LOG}", stacklevel=2)
        return
    lines = [result.failure, *(str(anomaly) for anomaly in result.anomalies)]
    lines += [] if has_hit else ["no fault has hit, which proves nothing"]
    lines += [f"fault: {one.planned}: {one.error or one.hit}" for one in result.happened]
    raise AssertionError(
        f"not exactly once (seed {result.schedule.seed}):\n" + "\n".join(filter(None, lines))
    )
