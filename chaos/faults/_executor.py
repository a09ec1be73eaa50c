"""Faults of the job's processes: driver, executors, Python workers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from eos.chaos.cluster.processes import kill_all, stopped
from eos.chaos.cluster.target import FaultTarget
from eos.chaos.faults._fault import Fault, Proof, pids


@contextmanager
def _driver_kill(target: FaultTarget) -> Iterator[Proof]:
    driver = target.supervisor.kill()
    yield Proof(f"pid {driver.pid}, exit code {driver.exit_code}")


@contextmanager
def _driver_stop(target: FaultTarget) -> Iterator[Proof]:
    processes = target.supervisor.current.driver_processes()
    with stopped(processes):
        yield Proof(pids(processes))


@contextmanager
def _executor_kill(target: FaultTarget) -> Iterator[Proof]:
    victims = target.await_processes("executors")[:1]
    kill_all(victims)
    yield Proof(pids(victims))


@contextmanager
def _executor_stop(target: FaultTarget) -> Iterator[Proof]:
    victims = target.await_processes("executors")[:1]
    with stopped(victims):
        yield Proof(pids(victims))


@contextmanager
def _worker_kill(target: FaultTarget) -> Iterator[Proof]:
    victims = target.await_processes("workers")
    kill_all(victims)
    yield Proof(pids(victims))


@contextmanager
def _worker_stop(target: FaultTarget) -> Iterator[Proof]:
    victims = target.await_processes("workers")
    with stopped(victims):
        yield Proof(pids(victims))


FAULTS: Final = (
    Fault("driver-kill", "driver", "SIGKILL of driver, JVM and executors", _driver_kill),
    Fault("driver-stop", "driver", "SIGSTOP of the driver, then SIGCONT", _driver_stop, True),
    Fault("executor-kill", "executor", "SIGKILL of an executor", _executor_kill),
    Fault(
        "executor-stop", "executor", "SIGSTOP of an executor, then SIGCONT", _executor_stop, True
    ),
    Fault("worker-kill", "executor", "SIGKILL of all Python workers", _worker_kill),
    Fault(
        "worker-stop", "executor", "SIGSTOP of all Python workers, then SIGCONT", _worker_stop, True
    ),
)
