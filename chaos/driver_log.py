"""What the drivers of a job say from now on: faults that they must notice are proved by it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

_POLL_S: Final = 0.1
_SHOWN: Final = 300


class DriverLog:
    """The lines that are written after this object was made."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._start = path.stat().st_size if path.exists() else 0

    def line_with(self, text: str) -> str:
        """The first line that has ``text``, cut short; "" when there is none."""
        with self._path.open("rb") as file:
            file.seek(self._start)
            lines = file.read().decode(errors="replace").splitlines()
        return next((line.strip()[:_SHOWN] for line in lines if text in line), "")

    def await_line(self, text: str, *, timeout_s: float = 60.0) -> str:
        """The same, as soon as there is one; "" when there is none in time."""
        deadline = time.monotonic() + timeout_s
        while not (line := self.line_with(text)) and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        return line
