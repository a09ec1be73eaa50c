"""What has to come to rest before a transaction is aborted.

An abort that overtook the first send to a fresh partition would leave the partition's readers
pinned by it (measured). So first all receipts are waited for; and a producer that failed, or whose
receipts do not come, is closed at the broker, which answers when all that it took before is stored.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from eos.errors import EosError

if TYPE_CHECKING:
    from eos.client.producer import Producer

_CLOSED_AT_ONCE: Final = 64


def settle(producers: Iterable[Producer], timeout_s: float) -> None:
    """Wait until nothing of ``producers`` is under way: two time-outs at most, for all together.

    Silent: an abort comes next, and has to go out anyway.
    """
    deadline = time.monotonic() + timeout_s
    failed = [producer for producer in producers if not _is_flushed(producer, deadline)]
    if not failed:
        return
    deadline = time.monotonic() + timeout_s
    with ThreadPoolExecutor(min(len(failed), _CLOSED_AT_ONCE)) as pool:
        for producer in failed:
            pool.submit(producer.close_failed, deadline)


def _is_flushed(producer: Producer, deadline: float) -> bool:
    try:
        producer.flush(deadline)
    except EosError:
        return False
    return True
