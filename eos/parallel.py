"""Questions to the broker side by side: many take little longer than one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from typing import Final, TypeVar

from eos._waiting import Future, await_or_cancel, begin

_AT_ONCE: Final = 32

T = TypeVar("T")
R = TypeVar("R")


def at_once(ask: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """``ask(item)`` of each, in their order.

    The first error, or an interrupt, is raised when all that were begun have ended.
    """
    if len(items) < 2:
        return [ask(item) for item in items]
    is_over = False

    def ask_in_time(item: T) -> R:
        if is_over:
            raise CancelledError
        return ask(item)

    def ask_all() -> list[R]:
        with ThreadPoolExecutor(min(len(items), _AT_ONCE)) as pool:
            return list(pool.map(ask_in_time, items))

    asking: Future[list[R]] = Future()
    try:
        begin(ask_all, asking)
        return asking.result()
    except BaseException:
        is_over = True
        await_or_cancel(asking)
        raise
