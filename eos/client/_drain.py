"""Waits until the producers of a transaction to be aborted have nothing in flight."""

from __future__ import annotations

import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Protocol

from eos.errors import EosError

_MAX_THREADS: Final = 64


class DrainedWriter(Protocol):
    """The interface of a producer here."""

    def flush(self, deadline: float = ...) -> None:
        """Wait for earlier sends, until ``deadline`` by ``time.monotonic``."""

    def close_failed(self, deadline: float) -> None:
        """Wait until the broker has closed it, or until ``deadline``; raises nothing."""


def drain(producers: Iterable[DrainedWriter], timeout_s: float) -> None:
    """Wait until ``producers`` have nothing in flight, for at most two timeouts in total.

    An abort that overtakes the first send to a new partition blocks the partition's readers
    (measured). So wait for all acknowledgements first. Then close each producer that failed, or
    whose acknowledgements did not come: the broker answers when it has stored all earlier entries.
    Raises nothing, as the abort must be sent in any case.
    """
    deadline = time.monotonic() + timeout_s
    failed = [producer for producer in producers if not _is_flushed(producer, deadline)]
    if not failed:
        return
    deadline = time.monotonic() + timeout_s
    with ThreadPoolExecutor(min(len(failed), _MAX_THREADS)) as pool:
        for producer in failed:
            pool.submit(producer.close_failed, deadline)


def _is_flushed(producer: DrainedWriter, deadline: float) -> bool:
    try:
        producer.flush(deadline)
    except EosError:
        return False
    return True
