"""The one thread of a client that sends what has lingered for long enough."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable
from typing import Final

from eos._waiting import Monitor

_IDLE_S: Final = 5.0
"""A thread with nothing to do ends; so a client that nobody closes leaves none behind."""


class Timer:
    """Calls back when a time has come. The thread is started when it is first needed."""

    def __init__(self) -> None:
        self._changed = Monitor()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._thread: threading.Thread | None = None
        self._stopped = False

    def call_after(self, wait_s: float, call: Callable[[], None]) -> None:
        """Call ``call`` once, in a while; at once when the client is closed. It must not raise."""
        with self._changed:
            if not self._stopped:
                heapq.heappush(self._due, (time.monotonic() + wait_s, next(self._numbers), call))
                if self._thread is None:
                    self._thread = threading.Thread(
                        target=self._run, name="eos-linger", daemon=True
                    )
                    self._thread.start()
                elif self._due[0][2] is call:
                    self._changed.notify_all()
                return
        call()

    def stop(self) -> None:
        """Call all that waits, now, and end the thread."""
        with self._changed:
            self._stopped = True
            waiting, self._due = self._due, []
            self._changed.notify_all()
        for _, _, call in waiting:
            call()

    def _run(self) -> None:
        while (call := self._next()) is not None:
            call()

    def _next(self) -> Callable[[], None] | None:
        """The next one whose time has come; None ends the thread."""
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
