"""The logs of a job's drivers: a file for each driver, in one folder."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_POLL_S: Final = 0.1
_SHOWN: Final = 300


def log_of(folder: Path, driver: int) -> Path:
    """The log file of the driver with this number."""
    return folder / f"driver-{driver:03}.log"


def logs_in(folder: Path) -> list[Path]:
    """The log files of all drivers, in order."""
    return sorted(folder.glob("driver-*.log"))


class DriverLog:
    """New log lines from now on, as proof of faults that a driver must notice."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._starts = {path: path.stat().st_size for path in logs_in(folder)}

    def line_with(self, text: str) -> str:
        """The first line with ``text``, truncated; "" if there is none."""
        found = (line for line in self._lines() if text in line)
        return next(found, "").strip()[:_SHOWN]

    def find_all(self, pattern: re.Pattern[str]) -> list[re.Match[str]]:
        """The first match of ``pattern`` in each line."""
        return list(filter(None, map(pattern.search, self._lines())))

    def _lines(self) -> Iterator[str]:
        for path in logs_in(self._folder):
            with path.open("rb") as file:
                file.seek(self._starts.get(path, 0))
                yield from file.read().decode(errors="replace").splitlines()

    def await_line(self, text: str, *, timeout_s: float = 120.0) -> str:
        """Wait for the first line with ``text``; "" if there is none in time."""
        deadline = time.monotonic() + timeout_s
        while not (line := self.line_with(text)) and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        return line
