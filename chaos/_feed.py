"""Gives the job its inputs: as fast as it takes them, and no faster than the faults come."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Final

from eos.chaos._inputs import Inputs
from eos.chaos._shapes import SHAPES
from eos.chaos.checker.history import Record
from eos.chaos.cluster.supervisor import DriverSupervisor
from eos.chaos.faults.nemesis import Nemesis
from eos.chaos.job import Job

EPOCH_TIMEOUT_S: Final = 300.0
_POLL_S: Final = 0.1
_AHEAD: Final = 1
"""So many inputs wait in the input beside the one that is written."""
_TRICKLE_S: Final = 4.0
"""How often an input is given out while a fault is in effect: a second driver takes its time."""


class Feed:
    """The input of one run.

    ``given``: how many inputs were given out.

    Args:
        records: of each input.
        inputs: how they are given out.
        minutes: give out no input after that; None: all of them.
        is_quiet: whether the query has written all that it has read.
    """

    def __init__(
        self,
        job: Job,
        records: list[list[Record]],
        inputs: Inputs,
        minutes: float | None,
        is_quiet: Callable[[], bool] = lambda: True,
    ) -> None:
        self.given = 0
        self._job = job
        self._records = records
        self._inputs = inputs
        self._minutes = minutes
        self._is_quiet = is_quiet

    def run(
        self, supervisor: DriverSupervisor, nemesis: Nemesis, on_progress: Callable[[], None]
    ) -> None:
        """Give out the inputs; returns when Spark has noted all of them.

        Raises:
            RuntimeError: the driver fails by itself, again and again.
            TimeoutError: an input is not done in time.
        """
        end = len(self._records)
        ends_at = math.inf if self._minutes is None else time.monotonic() + 60 * self._minutes
        given_at, noted_at, done = 0.0, time.monotonic(), 0
        # A fault may need the job to get on, or take back what Spark has noted.
        while done < end or nemesis.is_busy or not self._is_quiet():
            supervisor.check()
            if time.monotonic() > ends_at:
                end, ends_at = self.given, math.inf
                nemesis.stop()
            is_paced = nemesis.is_busy and time.monotonic() - given_at < _TRICKLE_S
            while self._may_give(done, end, nemesis) and not is_paced:
                self._inputs.release(self.given, self._rows(self.given))
                self.given, given_at = self.given + 1, time.monotonic()
                is_paced = nemesis.is_busy
            now = self._inputs.done()
            if now < done:
                done = now
            elif now > done:
                done, noted_at = now, time.monotonic()
                supervisor.progress()
                on_progress()
            elif time.monotonic() - noted_at > EPOCH_TIMEOUT_S:
                raise TimeoutError(f"input {done} is not done after {EPOCH_TIMEOUT_S:.0f} s")
            nemesis.epoch_begins(min(self.given - 1, done))
            time.sleep(_POLL_S)

    def _rows(self, number: int) -> list[Record]:
        """A query that keeps state gets each record twice, and has to know it the second time."""
        is_again = SHAPES[self._job.shape].comes_twice and number
        again = self._records[number - 1] if is_again else []
        return [*again, *self._records[number]]

    def _may_give(self, done: int, end: int, nemesis: Nemesis) -> bool:
        has_room = self.given < min(end, done + 1 + _AHEAD)
        return has_room and nemesis.may_begin(self.given)
