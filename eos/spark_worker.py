"""Settings of Spark's Python workers, which run many tasks one after the other."""

from __future__ import annotations

import ctypes
import functools
import gc
import os
import socket
from pathlib import Path
from typing import Final

_OPEN_FILES: Final = Path("/proc/self/fd")
# Only Linux has the option; without it Linux delays acknowledgements by up to 40 ms.
_QUICK_ACK: Final[int | None] = getattr(socket, "TCP_QUICKACK", None)


@functools.cache
def freeze_imports() -> None:
    """Exclude all that this process has imported from garbage collection, once per process."""
    # PySpark makes a worker collect garbage after each task. Scanning the modules of pyarrow,
    # pyspark and eos takes about 95 ms of a core each time (measured), much more than a small
    # epoch. Frozen objects are still freed with their last reference, but never as part of a cycle.
    gc.collect()
    gc.freeze()


def disable_delayed_acks() -> None:
    """Receive the task's rows without delay; call it once per task, before the first row is read.

    Does nothing if Spark uses Unix domain sockets, or on systems without ``TCP_QUICKACK``.
    """
    # Spark's JVM sends a task's command and holds its rows back until the command is acknowledged
    # (Nagle's algorithm). The kernel delays the acknowledgement by up to 40 ms, to send it with an
    # answer: 200 empty tasks took 5.1 s on two cores, and 1.9 s without the delay (measured).
    if _QUICK_ACK is None or not _OPEN_FILES.is_dir():
        return
    # It is unknown which file is Spark's connection. The kernel refuses files of other kinds, and
    # other connections lose nothing. ``socket.socket(fileno=...)`` would not do: with a default
    # timeout, which users may have set, it makes Spark's connection non-blocking.
    setsockopt, on = ctypes.CDLL(None).setsockopt, ctypes.c_int(1)
    option = (socket.IPPROTO_TCP, _QUICK_ACK, ctypes.byref(on), ctypes.sizeof(on))
    for name in os.listdir(_OPEN_FILES):
        setsockopt(int(name), *option)
