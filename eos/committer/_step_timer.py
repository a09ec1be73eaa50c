"""Measures the steps of one call for one epoch, and publishes them as events."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from eos.events import EpochEvent, StateChanged, StepEnded
from eos.steps import Step


class StepTimer:
    """Starts when it is created; uses a monotonic clock.

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
        """Number of transactions that the call has opened."""
        self.last: StateChanged | None = None
        """The newest record of the epoch appended during the call."""
        self._names = sink_id, query_id, epoch
        self._publish = publish
        self._started = self._since = time.monotonic()
        self._current: Step | None = Step.CLAIM
        self._steps: dict[str, float] = {}

    @property
    def duration_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._started

    @property
    def steps_s(self) -> Mapping[str, float]:
        """Seconds in each step so far, by label; the sum over attempts."""
        return dict(self._steps)

    def step_ended(self, step: Step) -> None:
        """``step`` has ended; it began when the previous one ended."""
        self._end(step, is_complete=True)
        self.attempts += step is Step.OPEN
        self._current = _next(step)

    def step_failed(self) -> None:
        """An error has ended the current step, if there is one."""
        if self._current is not None:
            self._end(self._current, is_complete=False)
            self._current = Step.END  # the abort

    def attempt_aborted(self) -> None:
        """The attempt was aborted; another one may follow."""
        self._end(Step.END, is_complete=True)
        self._current = None

    def finished_in_background(self, since: float) -> None:
        """The last step has ended in the background; it began at ``since`` (``time.monotonic``)."""
        self._publish_step(Step.FINISH, time.monotonic() - since, is_complete=True)

    def record_appended(self, event: StateChanged) -> None:
        """A record was appended to the sink's log."""
        _, query_id, epoch = self._names
        if (event.query_id, event.epoch) == (query_id, epoch):
            self.last = event

    def _end(self, step: Step, *, is_complete: bool) -> None:
        now = time.monotonic()
        duration_s, self._since = now - self._since, now
        self._steps[step.label] = self._steps.get(step.label, 0.0) + duration_s
        self._publish_step(step, duration_s, is_complete=is_complete)

    def _publish_step(self, step: Step, duration_s: float, *, is_complete: bool) -> None:
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


def _next(step: Step) -> Step | None:
    return next((other for other in Step if other.number == step.number + 1), None)
