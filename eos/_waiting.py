"""Waiting for other threads, where Ctrl-C may come at any moment.

``threading.Condition`` and what is built of it may be left with its lock held for ever, which stops
the thread that would have brought the answer, or without it, which ends ``with`` in a RuntimeError
in place of the interrupt (seen; both ways are in CPython's ``Lib/threading.py``: ``__enter__`` and
``wait`` are Python code, which signals interrupt between any two calls).
"""

from __future__ import annotations

import _thread
import concurrent.futures
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar

T = TypeVar("T")


class Monitor(_thread.RLock):  # type: ignore[misc]  # final in its stub only
    """A ``threading.Condition`` that one interrupt, wherever it comes, leaves as it should be.

    Its ``with`` is the lock's own, in C: no signal is looked at between the lock and the block.
    Wait only where the lock is held once.
    """

    def __init__(self) -> None:
        self._waiters: list[threading.Lock] = []

    def wait(self, timeout: float | None = None) -> bool:
        """Release the lock, wait to be notified, take the lock again; False: the time is over."""
        waiter = threading.Lock()
        waiter.acquire()
        self._waiters.append(waiter)
        try:
            try:
                self.release()
                notified = waiter.acquire(timeout=-1 if timeout is None else max(0.0, timeout))
            finally:
                self._take_again()
        finally:  # the interrupt may have come in the first one
            self._take_again()
        if not notified and waiter in self._waiters:
            self._waiters.remove(waiter)
        return notified

    def _take_again(self) -> None:
        if not self._is_owned():  # type: ignore[attr-defined]  # as threading.Condition does
            self.acquire()

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool:
        """Wait until ``predicate()`` holds; False: the time is over, and it does not."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not (holds := predicate()):
            left_s = None if deadline is None else deadline - time.monotonic()
            if left_s is not None and left_s <= 0:
                break
            self.wait(left_s)
        return holds

    def notify_all(self) -> None:
        """Wake all that wait, once the lock is free."""
        while self._waiters:
            self._waiters.pop().release()


class Future(concurrent.futures.Future[T]):
    """A ``concurrent.futures.Future`` whose waits Ctrl-C may interrupt anywhere."""

    def __init__(self) -> None:
        super().__init__()
        self._condition: Monitor = Monitor()  # type: ignore[assignment]


def begin(call: Callable[[], T], future: Future[T]) -> None:
    """Run ``call`` in a thread of its own, where no signal comes; it ends ``future``.

    ``Thread.start`` waits in Python code: interrupted there, nobody knows whether a thread runs.
    Interrupted here, ``future.cancel()`` tells: a call that has not begun never will.
    """
    _thread.start_new_thread(_end, (future, call))


def beside(call: Callable[[], object], block: Callable[[], T]) -> T:
    """``block()``, and ``call()`` at the same time; raises what either has raised, behind both."""
    running: Future[object] = Future()
    try:
        begin(call, running)
        result = block()
        running.result()
    except BaseException:
        await_or_cancel(running)
        raise
    return result


def await_or_cancel(running: Future[T]) -> None:
    """Behind an interrupt: the call has ended then, or never begins."""
    if not running.cancel():
        running.exception()


def submit(pool: Executor, call: Callable[[], T]) -> Future[T]:
    """``pool.submit``, for who waits in a thread that may be interrupted."""
    future: Future[T] = Future()
    pool.submit(_end, future, call)
    return future


def _end(future: Future[T], call: Callable[[], T]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = call()
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(result)
