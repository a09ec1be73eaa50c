"""The observers of a sink's epochs; they can't harm an epoch."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from eos.committer._epoch import EpochResult
from eos.committer._error_reasons import reason_of
from eos.committer._event_dispatcher import EventDispatcher
from eos.committer._step_timer import StepTimer
from eos.errors import Fenced, InDoubt
from eos.events import (
    EpochEnded,
    EpochEvent,
    EpochListener,
    EpochOutcome,
    EpochStarted,
    StateChanged,
    log_state,
)
from eos.protocol import Reason, State


class Observer:
    """Reports the epochs of one sink to ``listeners``, and their states to the driver's log.

    Each listener gets the events on its own thread (``EpochListener``).
    """

    def __init__(self, sink_id: str, listeners: Iterable[EpochListener] = ()) -> None:
        self._sink_id = sink_id
        self._dispatchers = [EventDispatcher(listener) for listener in listeners]
        self._timer: StepTimer | None = None

    def state_changed(self, event: StateChanged) -> None:
        """For ``CommitLog.open``: a record was appended."""
        if self._timer is not None:
            self._timer.record_appended(event)
        self._publish(event)
        log_state(event)

    @contextmanager
    def epoch(self, query_id: str, epoch: str) -> Iterator[EpochCall]:
        """Observe one call for one epoch; the block sets the result of the yielded object."""
        timer = StepTimer(self._sink_id, query_id, epoch, self._publish)
        names = {"sink_id": self._sink_id, "query_id": query_id, "epoch": epoch}
        self._publish(EpochStarted(**names, at=datetime.now(UTC)))
        self._timer, call, reason = timer, EpochCall(timer), None
        try:
            yield call
        except BaseException as error:
            timer.step_failed()
            call.outcome, reason = _outcome_of(error, timer.last), reason_of(error)
            raise
        finally:
            self._timer = None
            self._publish(call.end_event(names, reason))

    def close(self) -> None:
        """Wait until all events are delivered, for at most two seconds per listener."""
        for dispatcher in self._dispatchers:
            dispatcher.close()

    def _publish(self, event: EpochEvent) -> None:
        for dispatcher in self._dispatchers:
            with contextlib.suppress(Exception):  # no thread available, or a failing log handler
                dispatcher.put(event)


class EpochCall:
    """The progress of one call for one epoch."""

    def __init__(self, timer: StepTimer) -> None:
        self.timer = timer
        self.outcome = EpochOutcome.FAILED
        self._result: EpochResult | None = None

    def set_result(self, result: EpochResult) -> None:
        """Set the result that the caller gets."""
        self._result = result
        if result.status == "skipped":
            self.outcome = EpochOutcome.SKIPPED
        else:
            self.outcome = EpochOutcome.COMMITTED if result.records else EpochOutcome.EMPTY

    def end_event(self, names: dict[str, str], reason: Reason | None) -> EpochEnded:
        """Return the event of its end."""
        last, result = self.timer.last, self._result
        return EpochEnded(
            **names,
            at=datetime.now(UTC),
            outcome=self.outcome,
            duration_s=self.timer.duration_s,
            steps_s=self.timer.steps_s,
            attempts=self.timer.attempts,
            records=result.records if result else None,
            bytes=result.bytes if result else None,
            transaction=last.transaction if last else None,
            reason=reason,
        )


def _outcome_of(error: BaseException, last: StateChanged | None) -> EpochOutcome:
    """The outcome of a call that raised ``error``; ``last``: the epoch's newest record."""
    if isinstance(error, Fenced):
        return EpochOutcome.FENCED
    if isinstance(error, InDoubt) or (last is not None and last.state is State.PREPARED):
        return EpochOutcome.IN_DOUBT
    has_attempt = last is not None and last.attempt is not None
    return EpochOutcome.ABORTED if has_attempt else EpochOutcome.FAILED
