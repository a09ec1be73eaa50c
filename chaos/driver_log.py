"""What the drivers of a job say: a file for each life, in one folder."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

_POLL_S: Final = 0.1
_SHOWN: Final = 300


def log_of(folder: Path, life: int) -> Path:
    """Where the driver of this life writes."""
    return folder / f"driver-{life:03}.log"


def logs_in(folder: Path) -> list[Path]:
    """Those of all lives, in order."""
    return sorted(folder.glob("driver-*.log"))


class DriverLog:
    """What they say from now on: faults that they must notice are proved by it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._starts = {path: path.stat().st_size for path in logs_in(folder)}

    def line_with(self, text: str) -> str:
        """The first line that has ``text``, cut short; "" when there is none."""
        for path in logs_in(self._folder):
            with path.open("rb") as file:
                file.seek(self._starts.get(path, 0))
                lines = file.read().decode(errors="replace").splitlines()
            for line in lines:
                if text in line:
                    return line.strip()[:_SHOWN]
        return ""

    def await_line(self, text: str, *, timeout_s: float = 60.0) -> str:
        """The same, as soon as there is one; "" when there is none in time."""
        deadline = time.monotonic() + timeout_s
        while not (line := self.line_with(text)) and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        return line
