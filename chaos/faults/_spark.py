"""Faults of Spark and its operation."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psutil

from eos.chaos._user_code import USER_CODE_ENV
from eos.chaos.cluster.processes import stopped
from eos.chaos.cluster.target import FaultTarget
from eos.chaos.faults._fault import QUERIES, Armed, Fault, Proof, error_of_driver, pids, refused
from eos.protocol import State
from eos.steps import TaskStep

_FAILS_WITHIN_S: Final = 240.0
_POLL_S: Final = 0.1
_EPOCHS_BEHIND: Final = 3
_QUEUE: Final = "spark.scheduler.listenerbus.eventqueue.capacity"
_FEW_EVENTS: Final = 10
_DROPPED: Final = "Dropping event from queue"
_IMPATIENT: Final = (
    "--conf spark.network.timeout=10s --conf spark.executor.heartbeatInterval=2s "
    "--conf spark.network.timeoutInterval=2s"
)


@contextmanager
def _speculation(target: FaultTarget) -> Iterator[Proof]:
    """The next driver is started with ``spark.speculation``, and must refuse."""
    args = "--conf spark.speculation=true pyspark-shell"
    target.supervisor.arm({"PYSPARK_SUBMIT_ARGS": args})
    number = target.supervisor.kill().number
    yield Proof(error_of_driver(target, number + 1, "speculation"))


@contextmanager
def _checkpoint_away(target: FaultTarget) -> Iterator[Proof]:
    """Without its checkpoint, a driver begins a new query."""
    checkpoint = Path(target.job.checkpoint)
    away = checkpoint.with_name("checkpoint.away")

    def restore() -> None:
        shutil.rmtree(checkpoint, ignore_errors=True)
        away.rename(checkpoint)

    yield Proof(
        refused(target, "NewLineage", break_it=lambda: checkpoint.rename(away), heal_it=restore)
    )


@contextmanager
def _checkpoint_rewound(target: FaultTarget) -> Iterator[Proof]:
    """With an older copy of its checkpoint, a driver plans committed epochs again."""
    checkpoint = Path(target.job.checkpoint)
    old, newest = checkpoint.with_name("checkpoint.old"), checkpoint.with_name("checkpoint.newest")
    with target.supervisor.paused():
        target.supervisor.kill_all()
        shutil.copytree(checkpoint, old)
    before = _committed(target)
    deadline = time.monotonic() + _FAILS_WITHIN_S
    while _committed(target) < before + _EPOCHS_BEHIND and time.monotonic() < deadline:
        time.sleep(_POLL_S)

    def rewind() -> None:
        checkpoint.rename(newest)
        old.rename(checkpoint)

    def restore() -> None:
        shutil.rmtree(checkpoint)
        newest.rename(checkpoint)

    yield Proof(refused(target, "RewoundCheckpoint", break_it=rewind, heal_it=restore))


@contextmanager
def _shuffle_lost(target: FaultTarget) -> Iterator[Proof]:
    """Delete shuffle files as soon as they are written, until a stage runs again."""
    yield Proof(_lose_shuffles(target))


@contextmanager
def _unheard(target: FaultTarget) -> Iterator[Proof]:
    """As before, but Spark's event queue is full, so it drops the events about the stage."""
    args = f"--conf {_QUEUE}={_FEW_EVENTS} pyspark-shell"
    target.supervisor.arm({"PYSPARK_SUBMIT_ARGS": args, USER_CODE_ENV: "listens-slowly"})
    log = target.driver_log()
    number = target.supervisor.kill().number
    target.supervisor.await_driver(number + 1)
    dropped = log.await_line(_DROPPED)
    hit = _lose_shuffles(target)
    yield Proof(f"{hit}; {dropped}" if hit and dropped else "")


def _lose_shuffles(target: FaultTarget) -> str:
    """The driver's log line about it; "" if there is none."""
    scratch = Path(target.job.scratch_dir)
    log = target.driver_log()
    deadline = time.monotonic() + _FAILS_WITHIN_S
    hit = ""
    while not hit and time.monotonic() < deadline:
        for file in scratch.glob("driver-*/**/shuffle_*.data"):
            with contextlib.suppress(FileNotFoundError):
                file.unlink()
        hit = log.line_with("FetchFailed")
    return hit


@contextmanager
def _oversleeps(target: FaultTarget) -> Iterator[Proof]:
    """A worker is stopped after answering the roll call, and Spark considers its executor dead; it
    continues when the epoch is committed without it."""
    env = {"PYSPARK_SUBMIT_ARGS": f"{_IMPATIENT} pyspark-shell"}
    asleep = Armed(target, TaskStep.ANSWER, "stop", count=2, env=env).await_asleep()
    txn = target.newest_txn()
    executor = asleep and _executor_of(asleep)
    if asleep is None or executor is None or txn is None:
        yield Proof()
        return
    before = _committed(target)
    deadline = time.monotonic() + _FAILS_WITHIN_S
    with stopped([executor, asleep]):
        while _committed(target) == before and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        over = _committed(target) > before
        yield Proof(f"{pids([executor, asleep])} were stopped since {txn}" if over else "")


def _executor_of(worker: psutil.Process) -> psutil.Process | None:
    """The JVM that started the daemon of a Python worker."""
    daemon = worker.parent()
    return daemon.parent() if daemon is not None else None


def _committed(target: FaultTarget) -> int:
    return sum(record.state is State.COMMITTED for record in target.log_records() or [])


FAULTS: Final = (
    Fault("speculation", "driver", "a driver is started with speculation", _speculation),
    Fault(
        "checkpoint-away", "driver", "a driver is started without its checkpoint", _checkpoint_away
    ),
    Fault(
        "checkpoint-rewound",
        "driver",
        "a driver is started with an older copy of its checkpoint",
        _checkpoint_rewound,
        shapes=QUERIES,
    ),
    Fault(
        "shuffle-lost", "executor", "shuffle files are lost, and a stage runs again", _shuffle_lost
    ),
    Fault(
        "shuffle-lost-unheard",
        "executor",
        "a stage runs again, and Spark drops the events about it",
        _unheard,
        needs_own=True,
    ),
    Fault(
        "worker-oversleeps",
        "executor",
        "a worker is stopped after its answer until its epoch is committed without it",
        _oversleeps,
    ),
)
