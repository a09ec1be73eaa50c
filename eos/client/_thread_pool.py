"""Runs blocking calls outside of the event loop, also if their tasks are cancelled."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


class ThreadPool:
    """Runs up to ``threads`` calls at once; further calls wait."""

    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="eos-asyncio")

    async def run(self, call: Callable[[], T], undo: Callable[[T], object] | None = None) -> T:
        """Wait for ``call``, which continues if the task is cancelled.

        ``undo``: is called with the result if the task was cancelled.
        """
        working = self._pool.submit(call)
        try:
            return await asyncio.wrap_future(_shielded(working))
        except asyncio.CancelledError:
            if not working.cancel() and undo is not None:
                working.add_done_callback(lambda done: self._undo(done, undo))
            raise

    async def finish(self, call: Callable[[], T]) -> T:
        """Wait for ``call``, even if the task is cancelled.

        For calls whose outcome must be known. Afterwards the error of ``call`` is raised, or else
        the cancellation.
        """
        working = asyncio.wrap_future(self._pool.submit(call))
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

    def close(self) -> None:
        """Accept no more calls; running ones continue."""
        self._pool.shutdown(wait=False)

    def _undo(self, done: Future[T], undo: Callable[[T], object]) -> None:
        # Runs in the thread of the call, so that it may block.
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
