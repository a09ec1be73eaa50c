"""The timer of a client: it sends lingering batches and closes idle handles."""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from eos.waiting import Monitor

logger = logging.getLogger(__name__)

# An idle thread ends, so that a client that is never closed leaves no thread behind.
_IDLE_S: Final = 5.0
# More calls at once wait for a thread: only stuck ones take long.
_MOST_THREADS: Final = 16

_Call = Callable[[], None]


class Timer:
    """Calls functions after a delay: those of one owner one after the other, in the order of their
    times. A call that is stuck delays no other owner's."""

    def __init__(self) -> None:
        self._changed = Monitor()
        # Under the condition:
        self._due: list[tuple[float, int, object, _Call]] = []
        self._numbers = itertools.count()
        self._busy: dict[object, deque[_Call]] = {}  # owners with a call under way, and their next
        self._threads = 0
        self._idle = 0  # threads that wait for a call
        self._stopped = False

    def call_after(self, wait_s: float, call: _Call, owner: object) -> None:
        """Call ``call`` once, after ``wait_s``, or immediately if stopped. It must not raise.

        Raises:
            RuntimeError: no thread can be started. ``call`` is never called.
        """
        with self._changed:
            if not self._stopped:
                self._start_thread()  # may fail: then nothing is due
                due_at = time.monotonic() + wait_s
                heapq.heappush(self._due, (due_at, next(self._numbers), owner, call))
                if self._due[0][3] is call:
                    self._changed.notify_all()
                return
        call()

    def _start_thread(self) -> None:
        if self._idle or self._threads >= _MOST_THREADS:
            return
        try:
            threading.Thread(target=self._run, name="eos-timer", daemon=True).start()
        except RuntimeError:
            if not self._threads:
                raise
            return
        self._threads += 1
        self._idle += 1

    def stop(self) -> None:
        """Call all pending functions now, and end the threads."""
        with self._changed:
            self._stopped = True
            waiting, self._due = self._due, []
            self._changed.notify_all()
        for *_, call in waiting:
            call()

    def _run(self) -> None:
        while (taken := self._next()) is not None:
            owner, call = taken
            while call is not None:
                try:
                    call()
                except BaseException:  # sys.exit() of a user's callback: others wait for it
                    logger.exception("A call of the client's timer failed.")
                call = self._next_of(owner)

    def _next_of(self, owner: object) -> _Call | None:
        """Return the owner's next call that came due meanwhile."""
        with self._changed:
            if self._busy[owner]:
                return self._busy[owner].popleft()
            del self._busy[owner]
            self._idle += 1
            return None

    def _next(self) -> tuple[object, _Call | None] | None:
        """Wait for the next due function; None ends the thread."""
        idle_until = time.monotonic() + _IDLE_S
        with self._changed:
            while not self._stopped:
                now = time.monotonic()
                if self._due and self._due[0][0] <= now:
                    *_, owner, call = heapq.heappop(self._due)
                    if owner in self._busy:
                        self._busy[owner].append(call)
                        continue
                    self._busy[owner] = deque()
                    self._idle -= 1
                    if self._due:
                        self._start_thread()  # this one may be stuck for a while
                    return owner, call
                until = self._due[0][0] if self._due else idle_until
                if until <= now:
                    break
                self._changed.wait(until - now)
            self._idle -= 1
            self._threads -= 1
            return None
