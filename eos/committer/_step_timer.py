"""The clock of one call for one epoch: how long each step took, and what is told of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from eos.events import EpochEvent, StateChanged, StepEnded
from eos.steps import Step


class EpochWatch:
    """Runs from the moment it is made, by a clock that nobody sets.

    Args:
        publish: takes the events; must neither raise nor wait.
    """

    def __init__(
        self,
        sink_id: str = "",
        query_id: str = "",
        epoch: str = "",
        publish: Callable[[EpochEvent], None] = lambda _: None,
    ) -> None:
        self.attempts = 0
        """How many transactions the call has opened."""
        self.last: StateChanged | None = None
        """The newest record of the epoch that was written meanwhile."""
        self._names = sink_id, query_id, epoch
        self._publish = publish
        self._started = self._since = time.monotonic()
        self._under_way: Step | None = Step.CLAIM
        self._steps: dict[str, float] = {}

    @property
    def duration_s(self) -> float:
        """Seconds since it was made."""
        return time.monotonic() - self._started

    @property
    def steps_s(self) -> Mapping[str, float]:
        """Seconds in each step so far, by its label; those of several attempts together."""
        return dict(self._steps)

    def passed(self, step: Step) -> None:
        """``step`` is over; it began where the one before ended."""
        self._end(step, is_complete=True)
        self.attempts += step is Step.OPEN
        self._under_way = _behind(step)

    def broke_off(self) -> None:
        """An error has ended the step that was under way, if one was."""
        if self._under_way is not None:
            self._end(self._under_way, is_complete=False)
            self._under_way = Step.END  # of whatever has to be aborted now

    def runs_again(self) -> None:
        """The attempt is over, aborted; another one may follow."""
        self._end(Step.END, is_complete=True)
        self._under_way = None

    def noted(self, since: float) -> None:
        """The last step is over, beside the caller's own work, since a ``time.monotonic()``."""
        self._tell(Step.FINISH, time.monotonic() - since, is_complete=True)

    def see(self, event: StateChanged) -> None:
        """A record was appended to the log of the sink."""
        _, query_id, epoch = self._names
        if (event.query_id, event.epoch) == (query_id, epoch):
            self.last = event

    def _end(self, step: Step, *, is_complete: bool) -> None:
        now = time.monotonic()
        duration_s, self._since = now - self._since, now
        self._steps[step.label] = self._steps.get(step.label, 0.0) + duration_s
        self._tell(step, duration_s, is_complete=is_complete)

    def _tell(self, step: Step, duration_s: float, *, is_complete: bool) -> None:
        sink_id, query_id, epoch = self._names
        self._publish(
            StepEnded(
                sink_id=sink_id,
                query_id=query_id,
                epoch=epoch,
                at=datetime.now(UTC),
                step=step,
                duration_s=duration_s,
                is_complete=is_complete,
            )
        )


def _behind(step: Step) -> Step | None:
    return next((other for other in Step if other.number == step.number + 1), None)
