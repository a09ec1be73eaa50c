"""Waits until nothing is under way of producers whose transaction is being aborted."""

from __future__ import annotations

import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Protocol

from eos.errors import EosError

_CLOSED_AT_ONCE: Final = 64


class DrainedWriter(Protocol):
    """What is asked of a producer here."""

    def flush(self, deadline: float = ...) -> None:
        """Wait for what was sent before, at most until ``deadline`` of ``time.monotonic``."""

    def close_failed(self, deadline: float) -> None:
        """Wait, at most until ``deadline``, until the broker has closed it; silent."""


def drain(producers: Iterable[DrainedWriter], timeout_s: float) -> None:
    """Wait until nothing of ``producers`` is under way: two time-outs at most, for all together.

    An abort that overtook the first send to a fresh partition would leave the partition's readers
    pinned by it (measured). So first all acknowledgements are waited for; and a producer that
    failed, or whose acknowledgements do not come, is closed at the broker, which answers when all
    that it took before is stored. Silent: an abort comes next, and has to go out anyway.
    """
    deadline = time.monotonic() + timeout_s
    failed = [producer for producer in producers if not _is_flushed(producer, deadline)]
    if not failed:
        return
    deadline = time.monotonic() + timeout_s
    with ThreadPoolExecutor(min(len(failed), _CLOSED_AT_ONCE)) as pool:
        for producer in failed:
            pool.submit(producer.close_failed, deadline)


def _is_flushed(producer: DrainedWriter, deadline: float) -> bool:
    try:
        producer.flush(deadline)
    except EosError:
        return False
    return True
