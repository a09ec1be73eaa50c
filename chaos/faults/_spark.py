"""Faults of Spark and its operation."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import psutil

from eos.chaos._user_code import USER_CODE_ENV
from eos.chaos.cluster.processes import stopped
from eos.chaos.cluster.target import FaultTarget
from eos.chaos.faults._fault import (
    QUERIES,
    Armed,
    Fault,
    Proof,
    ask,
    error_of_driver,
    pids,
    refused,
)
from eos.protocol import BATCH
from eos.steps import TaskStep

_EPOCHS_BEHIND: Final = 3
_QUEUE: Final = "spark.scheduler.listenerbus.eventqueue.capacity"
_FEW_EVENTS: Final = 10
_DROPPED: Final = "Dropping event from queue"
# Spark's default is two minutes, longer than a transaction lives here.
_IMPATIENT: Final = (
    "--conf spark.network.timeout=10s --conf spark.executor.heartbeatInterval=2s "
    "--conf spark.network.timeoutInterval=2s"
)


@contextmanager
def _speculation(target: FaultTarget) -> Iterator[Proof]:
    # With speculation, two runs of one task write at the same time, so a sink must refuse.
    args = "--conf spark.speculation=true pyspark-shell"
    target.supervisor.arm({"PYSPARK_SUBMIT_ARGS": args})
    number = target.supervisor.kill().number
    yield Proof(error_of_driver(target, number + 1, "speculation", must_end=True))


@contextmanager
def _checkpoint_away(target: FaultTarget) -> Iterator[Proof]:
    # Without it Spark begins a new query, at epoch 0 and at the first input.
    checkpoint = Path(target.job.checkpoint)
    away = checkpoint.with_name("checkpoint.away")

    def restore() -> None:
        shutil.rmtree(checkpoint, ignore_errors=True)
        away.rename(checkpoint)

    is_sure, error = _is_stream(target), "NewLineage"
    lose = partial(checkpoint.rename, away)
    yield Proof(refused(target, error, break_it=lose, heal_it=restore, is_sure=is_sure))


@contextmanager
def _checkpoint_rewound(target: FaultTarget) -> Iterator[Proof]:
    # With an older copy Spark plans committed epochs again, perhaps with other rows: skipping
    # them would drop rows in silence.
    checkpoint = Path(target.job.checkpoint)
    old, newest = checkpoint.with_name("checkpoint.old"), checkpoint.with_name("checkpoint.newest")
    with target.supervisor.paused():  # nothing writes it while it is copied
        target.supervisor.kill_all()
        shutil.copytree(checkpoint, old)
    wanted = target.committed() + _EPOCHS_BEHIND
    if not ask(lambda: target.committed() >= wanted):
        yield Proof()
        return

    def rewind() -> None:
        checkpoint.rename(newest)
        old.rename(checkpoint)

    def restore() -> None:
        shutil.rmtree(checkpoint)
        newest.rename(checkpoint)

    is_sure, error = _is_stream(target), "RewoundCheckpoint"
    yield Proof(refused(target, error, break_it=rewind, heal_it=restore, is_sure=is_sure))


def _is_stream(target: FaultTarget) -> bool:
    # Batch calls, also of a foreachBatch function, may come again in any order.
    records = target.log_records() or []
    return any(record.query_id not in (None, BATCH) for record in records)


@contextmanager
def _shuffle_lost(target: FaultTarget) -> Iterator[Proof]:
    yield Proof(_lose_shuffles(target))


@contextmanager
def _unheard(target: FaultTarget) -> Iterator[Proof]:
    # A listener that takes seconds, and a queue for ten events: Spark drops those about the stage,
    # which must not matter to a sink.
    args = f"--conf {_QUEUE}={_FEW_EVENTS} pyspark-shell"
    target.supervisor.arm({"PYSPARK_SUBMIT_ARGS": args, USER_CODE_ENV: "listens-slowly"})
    log = target.driver_log()
    number = target.supervisor.kill().number
    target.supervisor.await_driver(number + 1)
    dropped = log.await_line(_DROPPED)
    hit = _lose_shuffles(target)
    yield Proof(f"{hit}; {dropped}" if hit and dropped else "")


def _lose_shuffles(target: FaultTarget) -> str:
    scratch = Path(target.job.scratch_dir)
    log = target.driver_log()

    def lose() -> str:
        # As soon as they are written: a task that reads one then fails, and Spark runs the stage
        # that wrote it again.
        for file in scratch.glob("driver-*/**/shuffle_*.data"):
            with contextlib.suppress(FileNotFoundError):
                file.unlink()
        return log.line_with("FetchFailed")

    return ask(lose, poll_s=0.0)  # a pause would let tasks read a file before it is deleted


@contextmanager
def _oversleeps(target: FaultTarget) -> Iterator[Proof]:
    # Spark must consider the executor dead within seconds, while the worker still has its answer
    # to the roll call, and its rows: later sends must not count.
    env = {"PYSPARK_SUBMIT_ARGS": f"{_IMPATIENT} pyspark-shell"}
    asleep = Armed(target, TaskStep.ANSWER, "stop", count=2, env=env).await_asleep()
    txn = target.newest_txn()
    executor = asleep and _executor_of(asleep)
    if asleep is None or executor is None or txn is None:
        yield Proof()
        return
    before = target.committed()
    with stopped([executor, asleep]):
        over = ask(lambda: target.committed() > before)
        yield Proof(f"{pids([executor, asleep])} were stopped since {txn}" if over else "")


def _executor_of(worker: psutil.Process) -> psutil.Process | None:
    # The JVM starts a daemon, which forks the workers.
    daemon = worker.parent()
    return daemon.parent() if daemon is not None else None


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
