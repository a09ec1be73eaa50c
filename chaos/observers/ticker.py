"""Calls a function periodically in a thread."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Self


class Ticker:
    """Calls ``call`` every ``every_s`` seconds until its block ends; a context manager.

    Args:
        ignored: errors after which the next call is simply tried.
    """

    def __init__(self, every_s: float, call: Callable[[], None], *ignored: type[Exception]) -> None:
        self._every_s = every_s
        self._call = call
        self._ignored = ignored
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ticker", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(timeout=30)

    def _run(self) -> None:
        while not self._over.wait(self._every_s):
            with contextlib.suppress(*self._ignored):
                self._call()
