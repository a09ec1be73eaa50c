"""Futures of threads, awaited in an event loop: many that end together wake the loop once."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class LoopWakeup:
    """Wraps futures for the running event loop.

    ``asyncio.wrap_future`` wakes the loop for each future, which costs more than all other work for
    a small message.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._ended: list[tuple[asyncio.Future[Any], Future[Any]]] = []

    def wrap(self, working: Future[T]) -> asyncio.Future[T]:
        """Return a loop's future with the result of ``working``; to cancel it does nothing."""
        awaited: asyncio.Future[T] = self._loop.create_future()
        working.add_done_callback(lambda done: self._wake(awaited, done))
        return awaited

    def _wake(self, awaited: asyncio.Future[Any], done: Future[Any]) -> None:
        with self._lock:
            self._ended.append((awaited, done))
            is_first = len(self._ended) == 1
        if is_first:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nothing waits
                self._loop.call_soon_threadsafe(self._end_all)

    def _end_all(self) -> None:
        with self._lock:
            ended, self._ended = self._ended, []
        for awaited, done in ended:
            if awaited.done():  # its task was cancelled
                continue
            error = done.exception()
            if error is None:
                awaited.set_result(done.result())
            else:
                awaited.set_exception(error)
