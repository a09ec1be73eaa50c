"""Measures a run: memory, files, disks and topics over time, growth, and recovery times."""

from __future__ import annotations

import contextlib
import math
import statistics
import time
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import psutil

from eos.chaos.checker.history import Anomaly, AnomalyKind, RunHistory, View
from eos.chaos.cluster.supervisor import DriverSupervisor
from eos.chaos.observers.readers import Background

if TYPE_CHECKING:
    from eos.chaos.cluster.target import FaultTarget


class Ticker(Background):
    """Calls ``call`` every ``every_s`` seconds until its block ends, despite ``ignored`` errors."""

    def __init__(self, every_s: float, call: Callable[[], None], *ignored: type[Exception]) -> None:
        super().__init__("ticker")
        self._every_s = every_s
        self._call = call
        self._ignored = ignored

    def _run(self) -> None:
        while not self._over.wait(self._every_s):
            with contextlib.suppress(*self._ignored):
                self._call()


EVERY_S: Final = 5.0
_CLOCK_STEP_S: Final = 0.001
STORAGE_EVERY: Final = 3  # the storage is measured with every third sample
RECENTLY_S: Final = 600.0  # the commit log keeps replaced files for this long
LONGEST_GAP_S: Final = 300.0  # a fault may keep a broker from answering for this long
_MB: Final = 1e6


@dataclass(frozen=True)
class Sample:
    """The figures at one moment, ``at_s`` after the run began."""

    at_s: float
    driver_mb: float  # resident memory, of the driver's Python
    driver_files: int
    jvm_mb: float
    jvm_files: int
    worker_mb: float  # of the largest Python worker
    worker_files: int
    # Storage is measured less often; None without a measurement. ``epochs`` have ended.
    epochs: int | None = None
    log_bytes: int | None = None
    log_files: int | None = None
    checkpoint_files: int | None = None
    receipts_bytes: int | None = None
    input_bytes: int | None = None
    backlog: int | None = None  # entries that the query has not read


class Bound(NamedTuple):
    """A limit for the growth of one figure."""

    most: float  # the highest ratio of the last quarter to the second; the first is warm-up
    level: Callable[[Sequence[float]], float]  # the highest for figures that go up and down
    long_s: float  # shorter runs prove nothing
    # Divided by the epochs of the last ``RECENTLY_S``: these figures depend on the pace, as faster
    # epochs leave more files until they are deleted.
    per_epoch: bool = False


_PROCESS: Final = Bound(1.10, statistics.median, 240.0)
_STORAGE: Final = Bound(1.25, max, 3 * RECENTLY_S)
# Not the JVM's memory: by design, its heap grows to its limit.
PROCESSES: Final[Mapping[str, Bound]] = dict.fromkeys(
    ("driver_mb", "driver_files", "jvm_files", "worker_mb", "worker_files"), _PROCESS
)
STORAGE: Final[Mapping[str, Bound]] = {
    "log_bytes": _STORAGE._replace(per_epoch=True),
    "log_files": _STORAGE._replace(per_epoch=True),
    "checkpoint_files": _STORAGE,
    "receipts_bytes": _STORAGE._replace(per_epoch=True),
    "input_bytes": _STORAGE,
}
BOUNDS: Final = {**PROCESSES, **STORAGE}


def is_long(samples: Sequence[Sample]) -> bool:
    """Whether the run was long enough to judge its processes."""
    return _is_long(samples, _PROCESS)


def recent_epochs(samples: Sequence[Sample]) -> list[int]:
    """The number of epochs that ended in the ``RECENTLY_S`` before each sample."""
    return [(one.epochs or 0) - _epochs_at(samples, one.at_s - RECENTLY_S) for one in samples]


def _epochs_at(samples: Sequence[Sample], at_s: float) -> int:
    return max((one.epochs or 0 for one in samples if one.at_s <= at_s), default=0)


def growth(samples: Sequence[Sample], name: str) -> float | None:
    """The ratio of a figure's later level to its earlier one; infinite if that was 0.

    None if the run was too short, or if the figure was always 0.
    """
    bound, taken = BOUNDS[name], _measured(samples, name)
    if not _is_long(taken, bound):
        return None
    values = [float(getattr(one, name)) for one in taken]
    quarter = len(values) // 4
    before = values[quarter : 2 * quarter]
    if bound.per_epoch:
        recent = recent_epochs(taken)
        values = [value / max(1, epochs) for value, epochs in zip(values, recent, strict=True)]
        # Compared with the second ten minutes: few older epochs exist then, so files that are never
        # deleted show, at any pace.
        early = [n for n, one in enumerate(taken) if 1 <= one.at_s / RECENTLY_S < 2]
        before = [values[n] for n in early] or [0.0]
    level_before, level_after = bound.level(before), bound.level(values[-quarter:])
    if not level_before:
        return math.inf if level_after else None
    return level_after / level_before


def _is_long(samples: Sequence[Sample], bound: Bound) -> bool:
    return len(samples) >= 4 and samples[-1].at_s >= bound.long_s


def _measured(samples: Sequence[Sample], name: str) -> list[Sample]:
    return [one for one in samples if getattr(one, name) is not None]


def grown(samples: Sequence[Sample]) -> dict[str, float]:
    """The figures that have grown by more than their bound, each with its growth."""
    found = {name: growth(samples, name) for name in BOUNDS}
    return {name: ratio for name, ratio in found.items() if ratio and ratio > BOUNDS[name].most}


def unmeasured(samples: Sequence[Sample], seconds: float) -> list[str]:
    """The reasons why the growth of processes or storage is unknown, for a long run."""
    found: list[str] = []
    if seconds < _STORAGE.long_s:
        return found
    for what, name in (("processes", "driver_mb"), ("storage", "log_files")):
        times = [0.0, *(one.at_s for one in _measured(samples, name)), seconds]
        gap_s = max(after - before for before, after in pairwise(times))
        if gap_s > LONGEST_GAP_S:
            found.append(f"no sample of its {what} for {gap_s:,.0f} s")
    return found + [
        f"{name} was 0 before and after"
        for name, bound in BOUNDS.items()
        if _is_long(_measured(samples, name), bound) and growth(samples, name) is None
    ]


class Sampler(Ticker):
    """Takes a sample every few seconds in a thread; a context manager."""

    def __init__(
        self, supervisor: DriverSupervisor, storage: Callable[[], dict[str, int]] | None = None
    ) -> None:
        # A process may die while it is read, and the job may be over: the next sample will do.
        super().__init__(EVERY_S, self._take, psutil.Error, RuntimeError)
        self.samples: list[Sample] = []
        self._supervisor = supervisor
        self._storage = storage  # its figures by name; {} if a server does not answer
        self._count = 0
        self._began = time.monotonic()

    def _take(self) -> None:
        self._count += 1
        is_due = self._storage is not None and self._count % STORAGE_EVERY == 0
        figures = self._storage() if self._storage is not None and is_due else {}
        self.samples.append(Sample(**self._processes(), **figures))

    def _processes(self) -> dict[str, Any]:
        driver = self._supervisor.current
        python = psutil.Process(driver.pid)
        jvms = [p for p in driver.driver_processes() if p.pid != driver.pid and "java" in p.name()]
        found: dict[str, Any] = {"at_s": time.monotonic() - self._began}
        for name, processes in (("driver", [python]), ("jvm", jvms), ("worker", driver.workers())):
            memory = [process.memory_info().rss / _MB for process in processes]
            files = [process.num_fds() for process in processes]
            found |= {
                f"{name}_mb": max(memory, default=0.0),
                f"{name}_files": max(files, default=0),
            }
        return found


@dataclass
class Timing:
    """Seconds until the next committed epoch; ``report.machine.DURATIONS`` explains them."""

    driver_restart_s: list[float] = field(default_factory=list)
    broker_restart_s: list[float] = field(default_factory=list)  # since it was ready
    failover_s: list[float] = field(default_factory=list)
    reader_stall_s: list[float] = field(default_factory=list)  # for each epoch


def misled_by_clock(before_s: float, anomalies: Sequence[Anomaly]) -> str:
    """Why early reads prove nothing, or "". ``before_s``: time() - monotonic() of the beginning."""
    # Never too much if this process must wait between both calls.
    back_s = before_s + time.monotonic() - time.time()
    if back_s < _CLOCK_STEP_S or all(one.kind is not AnomalyKind.EARLY_READ for one in anomalies):
        return ""
    return f"the clock was set back by {back_s:.3f} s: early reads prove nothing"


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
