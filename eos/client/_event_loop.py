"""From an event loop to threads and back: calls, and futures that end together."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from eos.errors import Fatal

T = TypeVar("T")


class ThreadPool:
    """Runs up to ``threads`` calls at once; further calls wait."""

    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="eos-asyncio")
        self._closed = False

    async def run(self, call: Callable[[], T], undo: Callable[[T], object] | None = None) -> T:
        """Wait for ``call``; if the task is cancelled it goes on, and ``undo`` gets its result.

        Raises:
            Fatal: this was closed.
        """
        working = self._submit(call)
        try:
            return await asyncio.wrap_future(_shielded(working))
        except asyncio.CancelledError:
            if not working.cancel() and undo is not None:
                loop = threading.get_ident()

                def end(done: Future[T]) -> None:
                    # It may block. The loop's thread runs it if the call has just ended; otherwise
                    # the call's own does, before any other call.
                    if threading.get_ident() == loop:
                        self._pool.submit(_undo, done, undo)
                    else:
                        _undo(done, undo)

                working.add_done_callback(end)
            raise

    async def finish(self, call: Callable[[], T]) -> T:
        """Wait for ``call``, even if the task is cancelled, and raise its error or cancellation."""
        working = asyncio.wrap_future(self._submit(call))
        cancelled: asyncio.CancelledError | None = None
        while not working.done():
            try:
                await asyncio.shield(working)
            except asyncio.CancelledError as error:
                cancelled = error
            except BaseException:
                break
        result = working.result()
        if cancelled is not None:
            raise cancelled
        return result

    def _submit(self, call: Callable[[], T]) -> Future[T]:
        if self._closed:
            raise Fatal("It is closed.")
        return self._pool.submit(call)

    def close(self) -> None:
        """Accept no more calls; running ones continue."""
        self._closed = True
        self._pool.shutdown(wait=False)


def _undo(done: Future[T], undo: Callable[[T], object]) -> None:
    if done.exception() is None:
        with contextlib.suppress(Exception):
            undo(done.result())


def _shielded(working: Future[T]) -> Future[T]:
    """Return a future with the result of ``working``; cancelling it does nothing."""
    seen: Future[T] = Future()

    def end(done: Future[T]) -> None:
        if done.cancelled() or not seen.set_running_or_notify_cancel():
            return
        error = done.exception()
        if error is None:
            seen.set_result(done.result())
        else:
            seen.set_exception(error)

    working.add_done_callback(end)
    return seen


class LoopWakeup:
    """Wraps futures for the running event loop; many that end together wake it once."""

    # ``asyncio.wrap_future`` wakes the loop for each future, which costs more than all other work
    # for a small message.

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
        # One wake-up for all that is waiting, not one for each message.
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
