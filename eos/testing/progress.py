"""Progress of long operations on stderr: a spinner, or plain lines without a terminal."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.status import Status

_PLAIN_INTERVAL_S = 5.0


class Progress:
    """Shows a title and a changing detail on stderr."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._status: Status | None = None
        self._started_s = self._printed_s = time.monotonic()

    def show(self, detail: str) -> None:
        """Show the progress; without a terminal, at most one line in five seconds."""
        if self._status is not None:
            self._status.update(f"{self._title}: {detail}")
        elif time.monotonic() - self._printed_s >= _PLAIN_INTERVAL_S:
            self._printed_s = time.monotonic()
            self._print(detail)

    def _print(self, detail: str) -> None:
        # Standard output is for results.
        print(f"{self._title}: {detail}", file=sys.stderr, flush=True)

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            from rich.console import Console

            self._status = Console(stderr=True).status(self._title)
            self._status.start()
        else:
            self._print("started")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._status is not None:
            self._status.stop()
        took = time.monotonic() - self._started_s
        self._print("failed" if kind else f"took {took:.0f} s")
