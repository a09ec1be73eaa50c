"""The timer thread of a client: it sends lingering batches and closes idle handles."""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from eos.waiting import Monitor

logger = logging.getLogger(__name__)

# An idle thread ends, so that a client that is never closed leaves no thread behind.
_IDLE_S: Final = 5.0


class Timer:
    """Calls functions after a delay. The thread is started at the first use."""

    def __init__(self) -> None:
        self._changed = Monitor()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._thread: threading.Thread | None = None
        self._stopped = False

    def call_after(self, wait_s: float, call: Callable[[], None]) -> None:
        """Call ``call`` once, after ``wait_s``, or immediately if stopped. It must not raise.

        Raises:
            RuntimeError: no thread can be started. ``call`` is never called.
        """
        with self._changed:
            if not self._stopped:
                if self._thread is None:
                    thread = threading.Thread(target=self._run, name="eos-timer", daemon=True)
                    thread.start()  # may fail: then nothing is due
                    self._thread = thread
                heapq.heappush(self._due, (time.monotonic() + wait_s, next(self._numbers), call))
                if self._due[0][2] is call:
                    self._changed.notify_all()
                return
        call()

    def stop(self) -> None:
        """Call all pending functions now, and end the thread."""
        with self._changed:
            self._stopped = True
            waiting, self._due = self._due, []
            self._changed.notify_all()
        for _, _, call in waiting:
            call()

    def _run(self) -> None:
        while (call := self._next()) is not None:
            try:
                call()
            except BaseException:  # sys.exit() of a user's callback: others wait for this thread
                logger.exception("A call of the client's timer failed.")

    def _next(self) -> Callable[[], None] | None:
        """Wait for the next due function; None ends the thread."""
        idle_until = time.monotonic() + _IDLE_S
        with self._changed:
            while not self._stopped:
                now = time.monotonic()
                if self._due and self._due[0][0] <= now:
                    return heapq.heappop(self._due)[2]
                until = self._due[0][0] if self._due else idle_until
                if not self._due and now >= idle_until:
                    break
                self._changed.wait(until - now)
            self._thread = None
            return None
