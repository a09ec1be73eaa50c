"""Delivers events to one listener on a separate thread, so that no epoch waits for it."""

from __future__ import annotations

import atexit
import contextlib
import contextvars
import logging
import os
import threading
import weakref
from queue import SimpleQueue
from typing import Final

from eos.events import EpochEvent, EpochListener, dispatch

logger = logging.getLogger(__name__)

MAX_PENDING: Final = 1000
_FLUSH_S: Final = 2.0

_Item = tuple[contextvars.Context, EpochEvent] | None


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
