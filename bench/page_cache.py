"""A machine whose memory is in use, as that of a broker is that has run for a day.

Measured on two cores of a virtual machine that hands free memory back to its host (free page
reporting): the first touch of a GB costs the kernel 2.1 s, each later one 0.4 s. What the broker
writes goes to the page cache, and so the same rows cost it three times the processor's time as soon
as it was given pages that nobody had used before, which was after some 5 GB. A full page cache is
used again instead, at hardly a cost, and nobody has to do without memory for it.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psutil

_WITHIN_S: Final = 60.0
_AT_A_TIME: Final = 1 << 20


@contextmanager
def full(folder: Path) -> Iterator[None]:
    """Fill what memory is free with pages of a file without content, which takes no room on disk
    and is gone at the end; what can't be filled in a minute stays as it is.

    On Linux only. A folder in memory (tmpfs) keeps no pages of what has no content.
    """
    with tempfile.TemporaryFile(dir=folder) as file:
        if sys.platform == "linux":
            _read(file.fileno(), psutil.virtual_memory().free)
        yield


def _read(file: int, size: int) -> None:
    """Read ``size`` bytes that were never written, with all cores."""
    readers = os.cpu_count() or 1
    share = -(-size // readers)
    os.truncate(file, share * readers)
    end = time.monotonic() + _WITHIN_S
    is_over = threading.Event()

    def read(start: int) -> None:
        buffer = bytearray(_AT_A_TIME)
        for offset in range(start, start + share, _AT_A_TIME):
            if is_over.is_set() or time.monotonic() > end:
                return
            os.preadv(file, [buffer], offset)

    with ThreadPoolExecutor(readers) as pool:
        try:
            list(pool.map(read, range(0, share * readers, share)))
        finally:
            is_over.set()  # Ctrl-C does not wait for the rest
