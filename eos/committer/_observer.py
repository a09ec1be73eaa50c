"""Who is told of a sink's epochs, and that nobody who is can harm one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from eos.committer._epoch import EpochResult
from eos.committer._event_dispatcher import Courier
from eos.committer._reasons import reason_of
from eos.committer._step_timer import EpochWatch
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
    """Tells ``listeners`` of the epochs of one sink, and the driver's log of their states.

    Each listener gets the events on a thread of its own (``EpochListener``).
    """

    def __init__(self, sink_id: str, listeners: Iterable[EpochListener] = ()) -> None:
        self._sink_id = sink_id
        self._couriers = [Courier(listener) for listener in listeners]
        self._watch: EpochWatch | None = None

    def state_changed(self, event: StateChanged) -> None:
        """For ``CommitLog.open``: a record is in the log."""
        if self._watch is not None:
            self._watch.see(event)
        self._publish(event)
        log_state(event)

    @contextmanager
    def epoch(self, query_id: str, epoch: str) -> Iterator[EpochCall]:
        """Watch one call for one epoch; the block gives its result to what it gets."""
        watch = EpochWatch(self._sink_id, query_id, epoch, self._publish)
        names = {"sink_id": self._sink_id, "query_id": query_id, "epoch": epoch}
        self._publish(EpochStarted(**names, at=datetime.now(UTC)))
        self._watch, call, reason = watch, EpochCall(watch), None
        try:
            yield call
        except BaseException as error:
            watch.broke_off()
            call.outcome, reason = _outcome_of(error, watch.last), reason_of(error)
            raise
        finally:
            self._watch = None
            self._publish(call.ended(names, reason))

    def close(self) -> None:
        """Wait until everything is delivered, for two seconds at most with each listener."""
        for courier in self._couriers:
            courier.close()

    def _publish(self, event: EpochEvent) -> None:
        for courier in self._couriers:
            with contextlib.suppress(Exception):  # no thread to be had, a log handler that raises
                courier.put(event)


class EpochCall:
    """One call for one epoch, as far as it has come."""

    def __init__(self, watch: EpochWatch) -> None:
        self.watch = watch
        self.outcome = EpochOutcome.FAILED
        self._result: EpochResult | None = None

    def returns(self, result: EpochResult) -> None:
        """What the caller gets."""
        self._result = result
        if result.status == "skipped":
            self.outcome = EpochOutcome.SKIPPED
        else:
            self.outcome = EpochOutcome.COMMITTED if result.records else EpochOutcome.EMPTY

    def ended(self, names: dict[str, str], reason: Reason | None) -> EpochEnded:
        """The event of its end."""
        last, result = self.watch.last, self._result
        return EpochEnded(
            **names,
            at=datetime.now(UTC),
            outcome=self.outcome,
            duration_s=self.watch.duration_s,
            steps_s=self.watch.steps_s,
            attempts=self.watch.attempts,
            records=result.records if result else None,
            bytes=result.bytes if result else None,
            transaction=last.transaction if last else None,
            reason=reason,
        )


def _outcome_of(error: BaseException, last: StateChanged | None) -> EpochOutcome:
    """What a call came to that ended in ``error``; ``last``: the epoch's newest record."""
    if isinstance(error, Fenced):
        return EpochOutcome.FENCED
    if isinstance(error, InDoubt) or (last is not None and last.state is State.PREPARED):
        return EpochOutcome.IN_DOUBT
    has_attempt = last is not None and last.attempt is not None
    return EpochOutcome.ABORTED if has_attempt else EpochOutcome.FAILED
