"""Spark's Python workers, which are used again and again."""

from __future__ import annotations

import ctypes
import functools
import gc
import os
import socket
from pathlib import Path
from typing import Final

_OPEN_FILES: Final = Path("/proc/self/fd")
_ACKNOWLEDGE_NOW: Final[int | None] = getattr(socket, "TCP_QUICKACK", None)
"""Linux has it, and 40 ms of waiting without it."""


@functools.cache
def spare_imports() -> None:
    """Keep the garbage collector from all that this process has imported; acts once in a process.

    PySpark has a worker collect garbage after each task. Going through the modules of pyarrow,
    pyspark and ours takes some 95 ms of a core each time (measured), much more than a small epoch.
    What is frozen is freed as before when its last reference goes; only cycles that become garbage
    of what is there now are never found.
    """
    gc.collect()
    gc.freeze()


def receive_at_once() -> None:
    """Have the rows of this process's task come without a delay; once a task, before it reads any.

    Spark's JVM sends a task's command, and holds its rows back until that is acknowledged (Nagle's
    algorithm); the kernel waits up to 40 ms for an answer to send the acknowledgement with. That is
    most of what a task with few rows takes: 200 tasks that do nothing took 5.1 s on two cores, and
    1.9 s so (measured). What is due is acknowledged now, and what comes next as soon as it is read,
    until this process answers (``TCP_QUICKACK``, tcp(7)). Does nothing where Spark uses Unix domain
    sockets, and on systems without the option.
    """
    if _ACKNOWLEDGE_NOW is None or not _OPEN_FILES.is_dir():
        return
    # Which file is Spark's connection nobody tells; the kernel refuses what is none, and other
    # connections lose nothing. Not by way of ``socket.socket(fileno=...)``: with a default timeout,
    # which users may have set, that makes Spark's connection one that does not block.
    setsockopt, on = ctypes.CDLL(None).setsockopt, ctypes.c_int(1)
    option = (socket.IPPROTO_TCP, _ACKNOWLEDGE_NOW, ctypes.byref(on), ctypes.sizeof(on))
    for name in os.listdir(_OPEN_FILES):
        setsockopt(int(name), *option)
