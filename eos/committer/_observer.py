"""The observers of a sink's epochs: they can't harm an epoch, and no epoch waits for them."""

from __future__ import annotations

import atexit
import contextlib
import contextvars
import logging
import os
import threading
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from queue import SimpleQueue
from typing import Final

from eos.committer._epoch import EpochResult, StepTimer, reason_of
from eos.errors import Fenced, InDoubt
from eos.events import (
    EpochEnded,
    EpochEvent,
    EpochListener,
    EpochOutcome,
    EpochStarted,
    StateChanged,
    dispatch,
    log_state,
)
from eos.protocol import Reason, State

logger = logging.getLogger(__name__)

MAX_PENDING: Final = 1000
_FLUSH_S: Final = 2.0

_Item = tuple[contextvars.Context, EpochEvent] | None


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


class EventDispatcher:
    """Delivers events to ``listener``: in order, each in the context of the thread that put it.

    Only ``close`` waits, for at most two seconds. Nothing here raises.
    """

    def __init__(self, listener: EpochListener) -> None:
        self._listener = listener
        self._lock = threading.Lock()
        self._events: SimpleQueue[_Item] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()
        self._is_dropping = False

    def put(self, event: EpochEvent) -> None:
        """Queue ``event``. It is dropped if too many are pending, or in a forked process."""
        if os.getpid() != self._pid:
            return  # the thread exists only in the parent
        if self._events.qsize() >= MAX_PENDING:
            if not self._is_dropping:
                self._is_dropping = True
                logger.warning("Listener %s is too slow: events are dropped", _name(self._listener))
            return
        self._is_dropping = False
        self._events.put((contextvars.copy_context(), event))
        with self._lock:
            if self._thread is None:
                self._thread = self._started()

    def _started(self) -> threading.Thread:
        thread = threading.Thread(
            target=_deliver, args=(self._events, self._listener), name="eos-listener", daemon=True
        )
        thread.start()
        _running[thread] = self._events
        # Without this the thread would wait forever for events of a deleted object.
        weakref.finalize(self, self._events.put, None).atexit = False
        return thread

    def close(self) -> None:
        """Wait until pending events are delivered, for at most two seconds."""
        if os.getpid() != self._pid:
            return
        with self._lock:
            thread, self._thread = self._thread, None
            events, self._events = self._events, SimpleQueue()
        if thread is None:
            return
        events.put(None)
        if thread is not threading.current_thread():
            thread.join(_FLUSH_S)


_running: Final[dict[threading.Thread, SimpleQueue[_Item]]] = {}


@atexit.register
def _flush() -> None:
    """Deliver the last events of a batch job, also those of a deleted sink."""
    for thread, events in list(_running.items()):
        if thread.is_alive():  # not in a forked process
            events.put(None)
            thread.join(_FLUSH_S)


def _deliver(events: SimpleQueue[_Item], listener: EpochListener) -> None:
    pid = os.getpid()
    has_failed = False
    while (item := events.get()) is not None:
        context, event = item
        try:
            context.run(dispatch, listener, event)
        except BaseException as error:  # also sys.exit(): a listener must not end the driver
            if not has_failed:  # one that always fails must not fill the log
                with contextlib.suppress(Exception):
                    logger.warning("Listener %s failed", _name(listener), exc_info=error)
            has_failed = True
        del item, context, event
        if os.getpid() != pid:
            return  # it forked, and this is the child
    _running.pop(threading.current_thread(), None)


def _name(listener: EpochListener) -> str:
    return type(listener).__name__
