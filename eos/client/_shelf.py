"""What waits for its next use: open at the broker, idle, and closed when nobody comes for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from eos.client._limit_backoff import PARKED_FOR_S, Crowd
from eos.client._timer import LingerClock

T = TypeVar("T")

MAX_PARKED: Final = 1024
"""On one shelf."""


class Shelf(Generic[T]):
    """One thing for each topic at most, and each for ``PARKED_FOR_S`` at most.

    Args:
        crowd: once it was met, what is put here is closed instead: it would be in others' way.
        close: ends one that nobody wants any more. It must not raise.
    """

    def __init__(self, clock: LingerClock, crowd: Crowd, close: Callable[[T], None]) -> None:
        self._clock = clock
        self._crowd = crowd
        self._close = close
        self._lock = threading.Lock()
        # By topic, those that wait for longest first: with the time since when.
        self._waiting: dict[str, tuple[float, T]] = {}
        self._is_watched = False
        self._is_closed = False

    def take(self, topic: str) -> T | None:
        """What waits there; it is handed out once."""
        with self._lock:
            found = self._waiting.pop(topic, None)
        return None if found is None else found[1]

    def put(self, topic: str, thing: T) -> None:
        """Keep ``thing`` for a while, in place of what waits there."""
        if self._crowd.was_met:
            self._close(thing)
            return
        with self._lock:
            if self._is_closed:
                return
            replaced = [self._waiting.pop(topic, None)]
            self._waiting[topic] = time.monotonic(), thing
            if len(self._waiting) > MAX_PARKED:
                replaced.append(self._waiting.pop(next(iter(self._waiting))))
            watch, self._is_watched = not self._is_watched, True
        for other in replaced:
            if other is not None:
                self._close(other[1])
        if watch:
            self._clock.call_after(PARKED_FOR_S, self._drop_idle)

    def clear(self) -> None:
        """Forget all, and what comes later; their connections are being closed."""
        with self._lock:
            self._is_closed = True
            self._waiting.clear()

    def _drop_idle(self) -> None:
        """Close what has waited for long enough; come again when the next one has."""
        now = time.monotonic()
        idle = []
        with self._lock:
            for topic, (since, thing) in list(self._waiting.items()):
                if since + PARKED_FOR_S > now:
                    break
                idle.append(thing)
                del self._waiting[topic]
            oldest, _ = next(iter(self._waiting.values()), (None, None))
            self._is_watched = oldest is not None
        for thing in idle:
            self._close(thing)
        if oldest is not None:
            self._clock.call_after(oldest + PARKED_FOR_S - now, self._drop_idle)
