"""The Python API: run one job under faults, and look at what came of it."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from eos.chaos._run import Result, ScheduleRun
from eos.chaos._run_options import for_workload, parse_faults
from eos.chaos.cluster.target import Pulsar, start_pulsar
from eos.chaos.job import load
from eos.chaos.planning import draw
from eos.chaos.schedule import Schedule


class ChaosCluster:
    """A broker of its own, started with the first run; a context manager.

    Args:
        folder: for the jobs' files and logs; made where there is none.
        brokers: more than 1: a cluster, which more can happen to.
    """

    def __init__(self, folder: Path, *, brokers: int = 1) -> None:
        # Drivers may run in another folder than this process does.
        self._folder = folder.absolute()
        self._count = brokers
        self._broker: Pulsar | None = None

    def __enter__(self) -> ChaosCluster:
        return self

    def __exit__(self, *_: object) -> None:
        if self._broker is not None:
            self._broker.stop()

    def run(
        self,
        workload: str = "eos.chaos.workloads:stream",
        *,
        seed: int = 1,
        faults: Sequence[str] | None = None,
        epochs: int = 24,
    ) -> Result:
        """Draw the schedule of ``seed``, and run it.

        Args:
            workload: ``module:function``; see ``eos.chaos.job``.
            faults: names to draw from (``eos chaos faults`` lists them); all that may come together
                when None.

        Raises:
            ConfigurationError: there is no such workload or fault.
        """
        text = "all" if faults is None else ",".join(faults)
        names = for_workload(parse_faults(text, singles=False), workload)
        return self.run_schedule(draw(seed, names, epochs=epochs, brokers=self._count), workload)

    def run_schedule(
        self,
        schedule: Schedule,
        workload: str = "eos.chaos.workloads:stream",
        *,
        project: Path | None = None,
    ) -> Result:
        """Run a schedule that you wrote yourself.

        Args:
            project: folder that the driver runs in; this process's own when None.

        Raises:
            ConfigurationError: there is no such workload.
        """
        load(workload)
        self._folder.mkdir(parents=True, exist_ok=True)
        if self._broker is None:
            self._broker = start_pulsar(self._count)
        folder = Path(tempfile.mkdtemp(prefix=f"{schedule.seed}-", dir=self._folder))
        return ScheduleRun(
            schedule, workload, self._broker, folder, tell=_say_nothing, project=project
        ).go()


def _say_nothing(_: str) -> None:
    """Pytest shows what went wrong, and else nothing."""


def check_exactly_once(result: Result) -> None:
    """Nothing, when the run came to its end and nothing is wrong.

    Raises:
        AssertionError: with what is wrong, and the faults that there were.
    """
    if result.is_good:
        return
    lines = [result.failure, *(str(anomaly) for anomaly in result.anomalies)]
    lines += [f"fault: {one.planned}: {one.error or one.hit}" for one in result.happened]
    raise AssertionError(
        f"not exactly once (seed {result.schedule.seed}):\n" + "\n".join(filter(None, lines))
    )
