"""What the job's processes hold, sample by sample: memory and open files must not grow."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import psutil

from eos.chaos.cluster.supervisor import DriverSupervisor
from eos.chaos.observers.ticker import Ticker

EVERY_S: Final = 5.0
MOST_GROWTH: Final = 1.10
"""The last quarter against the second one; the first is warming up."""
_LONG_S: Final = 240.0
"""Shorter runs say nothing about what grows."""
_MB: Final = 1e6


@dataclass(frozen=True)
class Sample:
    """One moment. Memory is resident, in MB; of several workers the largest counts.

    ``driver`` is the driver's Python, ``jvm`` its JVM. ``at_s``: since the run began.
    """

    at_s: float
    driver_mb: float
    driver_files: int
    jvm_mb: float
    jvm_files: int
    worker_mb: float
    worker_files: int


CHECKED: Final = ("driver_mb", "driver_files", "jvm_files", "worker_mb", "worker_files")
"""What must stay flat. A JVM's memory is not in it: its heap grows to its limit by design."""


def are_long(samples: Sequence[Sample]) -> bool:
    """Whether they are of a run that is long enough to tell what grows."""
    return bool(samples) and samples[-1].at_s >= _LONG_S


def growth(samples: Sequence[Sample], name: str) -> float | None:
    """The median of the last quarter over that of the second; None: too short a run to tell."""
    if not are_long(samples):
        return None
    return growth_of([float(getattr(sample, name)) for sample in samples], statistics.median)


def growth_of(values: Sequence[float], level: Callable[[Sequence[float]], float]) -> float | None:
    """The level of the last quarter over that of the second; None: there was nothing in both."""
    quarter = len(values) // 4
    return ratio(level(values[-quarter:]), level(values[quarter : 2 * quarter]))


def ratio(after: float, before: float) -> float | None:
    """How often as much ``after`` is; infinite when there was nothing before, None when there is
    nothing in both."""
    if not before:
        return math.inf if after else None
    return after / before


def grown(samples: Sequence[Sample]) -> dict[str, float]:
    """What has grown by more than it may, with its growth."""
    found = {name: growth(samples, name) for name in CHECKED}
    return {name: ratio for name, ratio in found.items() if ratio and ratio > MOST_GROWTH}


class Sampler(Ticker):
    """Takes a sample every few seconds in a thread; a context manager."""

    def __init__(self, supervisor: DriverSupervisor) -> None:
        # A process may die while it is looked at, and the job may be over.
        super().__init__(EVERY_S, self._take, psutil.Error, RuntimeError)
        self.samples: list[Sample] = []
        self._supervisor = supervisor
        self._began = time.monotonic()

    def _take(self) -> None:
        self.samples.append(self._sample())

    def _sample(self) -> Sample:
        life = self._supervisor.current
        python = psutil.Process(life.pid)
        jvms = [p for p in life.driver_processes() if p.pid != life.pid and "java" in p.name()]
        workers = life.workers()
        return Sample(
            at_s=time.monotonic() - self._began,
            driver_mb=_memory([python]),
            driver_files=_files([python]),
            jvm_mb=_memory(jvms),
            jvm_files=_files(jvms),
            worker_mb=_memory(workers),
            worker_files=_files(workers),
        )


def _memory(processes: Sequence[psutil.Process]) -> float:
    return max((process.memory_info().rss / _MB for process in processes), default=0.0)


def _files(processes: Sequence[psutil.Process]) -> int:
    return max((int(process.num_fds()) for process in processes), default=0)
