"""Hands events to one listener, on a thread of its own, so that no epoch ever waits for it."""

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

MAX_WAITING: Final = 1000
_FLUSH_S: Final = 2.0

_Item = tuple[contextvars.Context, EpochEvent] | None


class Courier:
    """Events on their way to ``listener``: in their order, each in the context of who put it.

    Nothing here raises or waits, but ``close``, which waits two seconds at most.
    """

    def __init__(self, listener: EpochListener) -> None:
        self._listener = listener
        self._lock = threading.Lock()
        self._events: SimpleQueue[_Item] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()
        self._is_dropping = False

    def put(self, event: EpochEvent) -> None:
        """Deliver ``event``, some time; drop it, when too many wait, or in a forked process."""
        if os.getpid() != self._pid:
            return  # the thread has stayed with the parent
        if self._events.qsize() >= MAX_WAITING:
            if not self._is_dropping:
                self._is_dropping = True
                logger.warning(
                    "the listener %s does not keep up: events are dropped", _name(self._listener)
                )
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
        _at_work[thread] = self._events
        # Without this the thread would wait for ever for events of an object that is gone.
        weakref.finalize(self, self._events.put, None).atexit = False
        return thread

    def close(self) -> None:
        """Wait until what was put is delivered; go on without, should that take two seconds."""
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


_at_work: Final[dict[threading.Thread, SimpleQueue[_Item]]] = {}


@atexit.register
def _flush() -> None:
    """A batch job ends with its last epoch: that is to be told, too, of a sink that is gone."""
    for thread, events in list(_at_work.items()):
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
        except BaseException as error:  # also sys.exit(): it is nobody's to decide here
            if not has_failed:  # one that always fails must not fill the log
                with contextlib.suppress(Exception):
                    logger.warning("the listener %s failed", _name(listener), exc_info=error)
            has_failed = True
        del item, context, event
        if os.getpid() != pid:
            return  # it forked, and this is the child
    _at_work.pop(threading.current_thread(), None)


def _name(listener: EpochListener) -> str:
    return type(listener).__name__
