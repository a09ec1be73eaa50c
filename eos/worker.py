"""Spark's Python workers, which are used again and again."""

from __future__ import annotations

import functools
import gc


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
