"""Where a job gets its inputs from: files, or a topic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from eos.chaos._checkpoint import Checkpoint
from eos.chaos._records import release
from eos.chaos._shapes import SHAPES
from eos.chaos.checker.history import Record
from eos.chaos.job import Job
from eos.chaos.schedule import Schedule


class Inputs(Protocol):
    """Gives out inputs, by their numbers from 0, and knows what Spark's checkpoint has of them."""

    def release(self, number: int, records: list[Record]) -> None:
        """Give the driver one input."""

    def done(self) -> int:
        """How many inputs are in epochs that are done: those before this number."""

    def epoch_of(self, given: int) -> Callable[[Record], str | None]:
        """Tells the epoch of a record of the first ``given`` inputs; None: it is in none."""


class FileInputs:
    """A file each, and mostly an epoch each."""

    def __init__(self, job: Job, schedule: Schedule) -> None:
        self._job = job
        self._schedule = schedule
        self._checkpoint = Checkpoint(job.checkpoint, SHAPES[job.shape].readings)

    def release(self, number: int, records: list[Record]) -> None:
        """See ``Inputs``."""
        release(self._job, self._schedule, number, records)

    def done(self) -> int:
        """See ``Inputs``."""
        return self._checkpoint.inputs_done()

    def epoch_of(self, given: int) -> Callable[[Record], str | None]:
        """See ``Inputs``."""
        epochs = self._checkpoint.epochs_of_inputs(given)
        return lambda record: epochs[record.input]
