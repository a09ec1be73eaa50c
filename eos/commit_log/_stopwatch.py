"""How long something took, for a process that may be stopped for days in the middle of it."""

from __future__ import annotations

import time


class Stopwatch:
    """Runs from the moment it is made."""

    def __init__(self) -> None:
        self._started = time.monotonic(), time.time()

    @property
    def elapsed_s(self) -> float:
        """Seconds since then, by whichever clock went further: one of them stands still while the
        machine sleeps."""
        return max(time.monotonic() - self._started[0], time.time() - self._started[1])
