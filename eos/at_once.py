"""Questions to the broker side by side: many take little longer than one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

_AT_ONCE: Final = 32

T = TypeVar("T")
R = TypeVar("R")


def at_once(ask: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """``ask(item)`` of each, in their order; the first error is raised when all have ended."""
    if len(items) < 2:
        return [ask(item) for item in items]
    with ThreadPoolExecutor(min(len(items), _AT_ONCE)) as pool:
        return list(pool.map(ask, items))
