"""Waiting for other threads, and for parallel requests, in a way that Ctrl-C may interrupt."""

from __future__ import annotations

import _thread
import atexit
import concurrent.futures
import math
import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Executor, ThreadPoolExecutor
from typing import Final, TypeVar

T = TypeVar("T")
_SLICE_S: Final = 1.0


# An interrupt can leave ``threading.Condition``, and all that uses it, with its lock held forever,
# which blocks the thread that should answer; or without the lock, so that ``with`` raises a
# RuntimeError instead of the interrupt. Both were seen: in CPython's ``Lib/threading.py``
# ``__enter__`` and ``wait`` are Python code, which signals interrupt between any two calls.
class Monitor(_thread.RLock):  # type: ignore[misc]  # final in its stub only
    """A ``threading.Condition`` that stays consistent when an interrupt comes at any point.

    Its ``with`` is the lock's, in C: no signal is handled between the lock and the block.
    Call ``wait`` only while the lock is held once.
    """

    def __init__(self) -> None:
        self._waiters: list[threading.Lock] = []

    def wait(self, timeout: float | None = None) -> bool:
        """Release the lock, wait for a notification, take the lock again; False on a timeout."""
        waiter = threading.Lock()
        waiter.acquire()
        self._waiters.append(waiter)
        try:
            try:
                self.release()
                notified = _acquire(waiter, math.inf if timeout is None else timeout)
            finally:
                self._take_again()
        finally:  # the interrupt may have come inside the first one
            self._take_again()
        if not notified and waiter in self._waiters:
            self._waiters.remove(waiter)
        return notified

    def _take_again(self) -> None:
        if not self._is_owned():  # type: ignore[attr-defined]  # as threading.Condition does
            self.acquire()

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool:
        """Wait until ``predicate()`` holds; return False on a timeout."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not (holds := predicate()):
            left_s = None if deadline is None else deadline - time.monotonic()
            if left_s is not None and left_s <= 0:
                break
            self.wait(left_s)
        return holds

    def notify_all(self) -> None:
        """Wake all waiters, once the lock is free."""
        while self._waiters:
            self._waiters.pop().release()


def _acquire(lock: threading.Lock, timeout_s: float) -> bool:
    # In slices, as a signal that comes just before ``acquire`` is handled after it.
    deadline = time.monotonic() + timeout_s
    while (left_s := deadline - time.monotonic()) > _SLICE_S:
        if lock.acquire(timeout=_SLICE_S):
            return True
    return lock.acquire(timeout=max(0.0, left_s))


class Future(concurrent.futures.Future[T]):
    """A ``concurrent.futures.Future`` that stays consistent when Ctrl-C interrupts a wait."""

    def __init__(self) -> None:
        super().__init__()
        self._condition: Monitor = Monitor()  # type: ignore[assignment]


def begin(call: Callable[[], T], future: Future[T]) -> None:
    """Run ``call`` in a new thread, which gets no signals, and put its result into ``future``."""
    # ``Thread.start`` waits in Python code: after an interrupt there, it is unknown whether the
    # thread runs. Here ``future.cancel()`` decides it: a call that has not begun never will.
    _thread.start_new_thread(_end, (future, call))


def run_both(call: Callable[[], object], block: Callable[[], T]) -> T:
    """Run ``call`` in another thread and ``block`` in this one; return the result of ``block``.

    An error of either is raised after both have ended.
    """
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
    """After an interrupt: wait until the call has ended, or make sure that it never begins."""
    if not running.cancel():
        running.exception()


def submit(pool: Executor, call: Callable[[], T]) -> Future[T]:
    """``pool.submit``, for callers in a thread that may be interrupted."""
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


_MAX_THREADS: Final = 32

R = TypeVar("R")


def parallel_map(ask: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """Return ``ask(item)`` for each item, in order.

    The first error, or an interrupt, is raised after all started calls have ended.
    """
    if len(items) < 2:
        return [ask(item) for item in items]
    is_over = False

    def ask_in_time(item: T) -> R:
        if is_over:
            raise CancelledError
        return ask(item)

    def ask_all() -> list[R]:
        with ThreadPoolExecutor(min(len(items), _MAX_THREADS)) as pool:
            return list(pool.map(ask_in_time, items))

    asking: Future[list[R]] = Future()
    try:
        begin(ask_all, asking)
        return asking.result()
    except BaseException:
        is_over = True
        await_or_cancel(asking)
        raise


_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def boot_time() -> float:
    """``time.monotonic``, but on Linux it also counts while the machine sleeps."""
    return time.clock_gettime(_CLOCK)


# --- closing what is freed -----------------------------------------------------------------------

_LAST_WAIT_S: Final = 30.0
_closing: Final[set[Future[object]]] = set()
os.register_at_fork(after_in_child=_closing.clear)


def close_when_freed(owner: object, close: Callable[[], object]) -> weakref.finalize[..., object]:
    """Call ``close`` after ``owner`` was freed, or as the process exits; not in a forked child."""
    return weakref.finalize(owner, _close, close, os.getpid())


def _close(close: Callable[[], object], pid: int) -> None:
    if os.getpid() != pid:
        return
    if not threading.main_thread().is_alive():  # the process exits
        close()
        return
    # The garbage collector runs this in any thread, which may hold a lock that ``close`` needs, or
    # be the one that reads what ``close`` waits for. ``Thread.start`` would wait here.
    closed: Future[object] = Future()
    begin(close, closed)
    _closing.add(closed)
    closed.add_done_callback(_closing.discard)


@atexit.register
def _await_closing() -> None:
    concurrent.futures.wait(list(_closing), _LAST_WAIT_S)
