"""Run many requests to a broker in parallel: together they take little longer than one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from typing import Final, TypeVar

from eos._waiting import Future, await_or_cancel, begin

_MAX_THREADS: Final = 32

T = TypeVar("T")
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
