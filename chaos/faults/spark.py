"""Faults of Spark and of how it is operated."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from chaos.faults.fault import Fault, Proof
from chaos.faults.refusal import error_of_life, refused
from chaos.target import Target

_FAILS_WITHIN_S: Final = 60.0


@contextmanager
def _speculation(target: Target) -> Iterator[Proof]:
    """The next driver is started with ``spark.speculation``, and has to refuse."""
    args = "--conf spark.speculation=true pyspark-shell"
    target.supervisor.arm({"PYSPARK_SUBMIT_ARGS": args})
    number = target.supervisor.kill().number
    yield Proof(error_of_life(target, number + 1, "speculation"))


@contextmanager
def _checkpoint_away(target: Target) -> Iterator[Proof]:
    """A driver that finds no checkpoint begins a new query."""
    checkpoint = Path(target.job.checkpoint)
    away = checkpoint.with_name("checkpoint.away")

    def restore() -> None:
        shutil.rmtree(checkpoint, ignore_errors=True)
        away.rename(checkpoint)

    yield Proof(
        refused(target, "NewLineage", break_it=lambda: checkpoint.rename(away), heal_it=restore)
    )


@contextmanager
def _shuffle_lost(target: Target) -> Iterator[Proof]:
    """Shuffle files vanish as soon as they are written, until a stage has run again for it."""
    scratch = Path(target.job.scratch_dir)
    log = target.driver_log()
    deadline = time.monotonic() + _FAILS_WITHIN_S
    hit = ""
    while not hit and time.monotonic() < deadline:
        for file in scratch.glob("life-*/**/shuffle_*.data"):
            with contextlib.suppress(FileNotFoundError):
                file.unlink()
        hit = log.line_with("FetchFailed")
    yield Proof(hit)


FAULTS: Final = (
    Fault("speculation", "driver", "a driver is started with speculation on", _speculation),
    Fault(
        "checkpoint-away", "driver", "a driver is started without its checkpoint", _checkpoint_away
    ),
    Fault(
        "shuffle-lost", "executor", "shuffle files vanish, and a stage runs again", _shuffle_lost
    ),
)
