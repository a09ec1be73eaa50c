"""Feeds a run: releases inputs as fast as the job takes them, and no faster than faults begin."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Protocol

from eos.chaos._query_shapes import SHAPES, emits, is_quiet
from eos.chaos._records import release, shape_in, text_of
from eos.chaos._spark_checkpoint import Checkpoint
from eos.chaos.checker.history import Record
from eos.chaos.cluster.supervisor import DriverSupervisor
from eos.chaos.faults.nemesis import Nemesis
from eos.chaos.job import Job
from eos.chaos.schedule import Schedule

EPOCH_TIMEOUT_S: Final = 300.0
_POLL_S: Final = 0.1
_AHEAD: Final = 1  # number of inputs released before the one being written is done
# Interval between inputs while a fault is active; a second driver takes a while to start.
_TRICKLE_S: Final = 4.0
# Without progress for this long, the feed no longer waits for the next fault to begin.
_STARVED_S: Final = 30.0
_NO_CHECKPOINT: Final = ": no query has its checkpointLocation in Job.checkpoint"


class Inputs(Protocol):
    """Releases inputs by number, from 0, and finds them in Spark's checkpoint."""

    def release(self, number: int, records: list[Record]) -> None:
        """Release one input."""

    def done(self) -> int:
        """The number of inputs that are in finished epochs."""

    def epoch_of(self, given: int) -> Callable[[Record], str | None]:
        """A function that finds the epoch that read a record of the first ``given`` inputs, or
        None."""


class FileInputs:
    """Releases each input as a file; most become one epoch."""

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


class Feed:
    """The feed of one run."""

    def __init__(
        self,
        job: Job,
        schedule: Schedule,
        records: list[list[Record]],
        inputs: Inputs,
        minutes: float | None = None,  # no input is released after them; None for no limit
    ) -> None:
        self.given = 0  # the number of released inputs
        self._job = job
        self._filler = "x" * schedule.padding
        self._records = records
        self._inputs = inputs
        self._minutes = minutes
        self._traits = SHAPES[job.shape]
        self._checkpoint = Checkpoint(job.checkpoint)

    def run(
        self, supervisor: DriverSupervisor, nemesis: Nemesis, on_progress: Callable[[], None]
    ) -> None:
        """Release the inputs; return when Spark has noted all of them.

        Raises:
            RuntimeError: the driver fails repeatedly without progress.
            TimeoutError: an input is not done in time.
        """
        end = len(self._records)
        ends_at = math.inf if self._minutes is None else time.monotonic() + 60 * self._minutes
        given_at, noted_at, done = 0.0, time.monotonic(), 0
        # A fault may need progress of the job, or may remove epochs that Spark has noted.
        while done < end or nemesis.is_busy or not self._is_quiet():
            supervisor.check()
            if time.monotonic() > ends_at:
                # The released inputs must still be written, without further faults.
                end, ends_at = self.given, math.inf
                nemesis.stop()
            is_paced = nemesis.is_busy and time.monotonic() - given_at < _TRICKLE_S
            # The active fault may need more epochs before it ends, and the next fault can begin.
            is_starved = time.monotonic() - noted_at > _STARVED_S
            while not is_paced and self._may_give(done, end, nemesis, is_starved):
                self._inputs.release(self.given, self._rows(self.given))
                self.given, given_at = self.given + 1, time.monotonic()
                is_paced = nemesis.is_busy
            now = self._inputs.done()
            if now < done:  # an epoch was taken back from the checkpoint: no progress, no failure
                done = now
            elif now > done:
                done, noted_at = now, time.monotonic()
                supervisor.progress()
                on_progress()
            elif time.monotonic() - noted_at > EPOCH_TIMEOUT_S:
                why = "" if Path(self._job.checkpoint).exists() else _NO_CHECKPOINT
                raise TimeoutError(f"input {done} is not done after {EPOCH_TIMEOUT_S:.0f} s{why}")
            nemesis.epoch_begins(min(self.given - 1, done))
            time.sleep(_POLL_S)

    def expected(self) -> Iterator[Record]:
        """The released records that must be readable, each with the epoch that writes it."""
        read_in = self._inputs.epoch_of(self.given)
        epoch_of = emits(self._job.shape, self._checkpoint, read_in)
        done, noted = self._inputs.done(), self._checkpoint.noted()
        for records in self._records[: self.given]:
            for record in records:
                epoch = epoch_of(record)
                if epoch is None and record.input < done and read_in(record) is None:
                    epoch = str(noted[-1])  # the source has stepped over it: it is lost
                if epoch is None and self._traits.has_windows:
                    continue  # its window is still open
                found = record if epoch is None else record._replace(epoch=epoch)
                yield found._replace(schema_version=self._schema_of(found))

    def noted(self) -> frozenset[str] | None:
        """The epochs that are done in Spark's checkpoint; None for batch calls."""
        if self._job.shape == "notebook":
            return None  # only the log has the epochs of batch calls
        return frozenset(map(str, self._checkpoint.noted()))

    def _schema_of(self, record: Record) -> str:
        if not self._job.whole_rows:
            return ""
        return shape_in(record.epoch, text_of(record.id, self._filler), record.key)

    def _is_quiet(self) -> bool:
        return not self._traits.has_windows or is_quiet(self._checkpoint, self._records[-1][0])

    def _rows(self, number: int) -> list[Record]:
        # A stateful query gets each record in two inputs, and must drop one.
        is_again = self._traits.comes_twice and number
        again = self._records[number - 1] if is_again else []
        return [*again, *self._records[number]]

    def _may_give(self, done: int, end: int, nemesis: Nemesis, is_starved: bool) -> bool:
        # No further ahead: inputs are kept for the faults that have not begun.
        has_room = self.given < min(end, done + 1 + _AHEAD)
        return has_room and (is_starved or nemesis.may_begin(self.given))
