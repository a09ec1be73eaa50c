"""Faults of the user's code, and of the user at the keyboard."""

from __future__ import annotations

import random
import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import psutil

from eos.chaos._user_code import USER_CODE_ENV, log_prefix
from eos.chaos.cluster.target import FaultTarget
from eos.chaos.faults._fault import QUERIES, Armed, Fault, Proof, Violated, error_of_driver
from eos.chaos.job import QueryShape
from eos.steps import Step

_WITHIN_S: Final = 240.0
_EPOCH: Final = re.compile(r"Epoch (\d+) ended in an error")
_INTERRUPTS: Final = 12
_NOTEBOOKS: Final[frozenset[QueryShape]] = frozenset({"notebook"})


@contextmanager
def _swallowed(target: FaultTarget) -> Iterator[Proof]:
    # Spark considers the epoch done, and the sink does not. The harness's own workload runs with
    # the user's code that the environment names.
    armed = Armed(target, Step.WRITE, "error", count=2, env={USER_CODE_ENV: "swallows"})
    log = target.driver_log()
    driver = armed.driver
    swallowed = armed.await_fired() and log.await_line(log_prefix("swallows"))
    if not swallowed:
        yield Proof()
        return
    error = error_of_driver(target, driver.number, "UnfinishedEpoch")
    found = _EPOCH.search(error)
    if found is None:
        raise Violated(f"{swallowed}, but no UnfinishedEpoch came: {driver.last_error()}")
    with target.supervisor.paused():
        target.supervisor.kill_all()
        _take_back(Path(target.job.checkpoint), int(found[1]))
    yield Proof(f"{swallowed}; the next epoch was refused, and epoch {found[1]} is written again")


def _take_back(checkpoint: Path, epoch: int) -> None:
    # The error's own words: delete commits/N, offsets/N+1, and all later ones. Only that.
    for folder, first in (("commits", epoch), ("offsets", epoch + 1)):
        for path in (checkpoint / folder).iterdir():
            # Hadoop writes a checksum file for each: .7.crc for 7.
            number = path.name.strip(".").removesuffix(".crc")
            if number.isdecimal() and int(number) >= first:
                path.unlink()


@contextmanager
def _called_twice(target: FaultTarget) -> Iterator[Proof]:
    target.supervisor.arm({USER_CODE_ENV: "calls-twice"})
    log = target.driver_log()
    number = target.supervisor.kill().number
    target.supervisor.await_driver(number + 1)
    line = log.await_line(log_prefix("calls-twice"), timeout_s=_WITHIN_S)
    if "not refused" in line:
        raise Violated(f"a second call of one epoch was accepted: {line}")
    yield Proof(line)


@contextmanager
def _interrupted(target: FaultTarget) -> Iterator[Proof]:
    """Ctrl-C at random moments, in one process."""
    rng = random.Random(time.time())
    driver = target.supervisor.current
    log = target.driver_log()
    if not log.await_line(log_prefix("notebook"), timeout_s=_WITHIN_S):
        yield Proof()
        return
    for _ in range(_INTERRUPTS):
        with suppress(psutil.NoSuchProcess):
            psutil.Process(driver.pid).send_signal(signal.SIGINT)
        time.sleep(rng.uniform(0.3, 3.0))
    line = log.line_with(f"{log_prefix('notebook')} interrupted")
    end = "which continued" if driver.is_alive else f"which ended: {driver.last_error()}"
    yield Proof(line and f"{_INTERRUPTS} x SIGINT in pid {driver.pid}, {end}")
    if line and not driver.is_alive and not driver.was_signalled:
        raise RuntimeError(f"the notebook did not survive Ctrl-C: {driver.last_error()}")


FAULTS: Final = (
    Fault(
        "swallowed",
        "user",
        "the foreachBatch function catches an error; its epoch is removed from the checkpoint",
        _swallowed,
        shapes=QUERIES,
        needs_own=True,
    ),
    Fault(
        "called-twice",
        "user",
        "the foreachBatch function calls the sink twice, under another job group",
        _called_twice,
        shapes=QUERIES,
        needs_own=True,
    ),
    Fault(
        "interrupted",
        "user",
        "Ctrl-C at random moments in a notebook, which continues with the same sink",
        _interrupted,
        shapes=_NOTEBOOKS,
        needs_own=True,
    ),
)
