"""Blocking calls off the event loop, and what becomes of them when their task is cancelled."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


class ThreadPool:
    """Threads; as many calls at once, others wait their turn."""

    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="eos-asyncio")

    async def run(self, call: Callable[[], T], undo: Callable[[T], object] | None = None) -> T:
        """Wait for ``call``, which goes on when the task is cancelled.

        ``undo``: for what nobody gets then; called with it as soon as it is there.
        """
        working = self._pool.submit(call)
        try:
            return await asyncio.wrap_future(_shielded(working))
        except asyncio.CancelledError:
            if not working.cancel() and undo is not None:
                working.add_done_callback(lambda done: self._undo(done, undo))
            raise

    async def finish(self, call: Callable[[], T]) -> T:
        """Wait for ``call``; a task that is cancelled meanwhile waits for its end all the same.

        For what must not end in doubt unnoticed. The cancellation is raised behind it, unless
        ``call`` raised: then its error is.
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
        """Take no more calls; those that run end by themselves."""
        self._pool.shutdown(wait=False)

    def _undo(self, done: Future[T], undo: Callable[[T], object]) -> None:
        # In the thread of the call, so that it may block.
        if done.exception() is None:
            with contextlib.suppress(Exception):
                undo(done.result())


def _shielded(working: Future[T]) -> Future[T]:
    """Ends as ``working`` does; to cancel it cancels nothing."""
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
