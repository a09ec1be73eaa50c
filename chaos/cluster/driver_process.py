"""A process of the driver program, and its log: started, killed, stopped, or asked to end."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import psutil

from eos.chaos.cluster.processes import descendants, executors, kill_session, workers
from eos.chaos.cluster.spark_env import spark_env
from eos.chaos.job import Job, prepare

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
        # Lines of earlier drivers, or of before the fault, prove nothing.
        self._starts = {path: path.stat().st_size for path in logs_in(folder)}

    def line_with(self, text: str) -> str:
        """The first line with ``text``, truncated; "" without one."""
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
        """Wait for the first line with ``text``; "" if time is up."""
        deadline = time.monotonic() + timeout_s
        while not (line := self.line_with(text)) and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        return line


_TAIL_BYTES = 64 * 1024
_ERROR_SHOWN = 800


class DriverProcess:
    """Starts a driver of ``job`` immediately; its ``number`` counts from 1."""

    def __init__(
        self,
        job: Job,
        number: int,
        log_file: Path,
        *,
        project: Path,  # working directory; its modules take precedence over installed ones
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.number = number
        self.began_at = time.time()
        self.log_file = log_file
        self.was_killed = False  # by the harness, not by a failpoint
        scratch = Path(job.scratch_dir) / f"driver-{number}"
        mine = replace(job, scratch_dir=str(scratch))
        prepare(mine)
        with log_file.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "eos.chaos.cluster._driver", mine.to_json()],
                cwd=project,
                env={**os.environ, **spark_env(scratch, path=(project,)), **(env or {})},
                stdin=subprocess.PIPE,  # closed to ask it to end, and if the harness dies
                stdout=log,
                stderr=log,
                start_new_session=True,  # by which its JVM is found when Python is dead
            )

    @property
    def pid(self) -> int:
        """The process id of the driver's Python."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """The exit code of its Python, negative for a signal; None while it runs."""
        return self._process.poll()

    @property
    def was_signalled(self) -> bool:
        """Whether a signal ended it, from any process: its progress is unknown."""
        return self.was_killed or (self.exit_code or 0) < 0

    @property
    def is_alive(self) -> bool:
        """Whether its Python runs or is stopped."""
        return self.exit_code is None

    def driver_processes(self) -> list[psutil.Process]:
        """Python and JVM of the driver, without executors and their child processes."""
        # Executors are children of the driver's JVM, so they are among its descendants.
        others = executors(self.pid)
        theirs = {p.pid for one in others for p in (one, *descendants(one.pid))}
        family = [psutil.Process(self.pid), *descendants(self.pid)]
        return [process for process in family if process.pid not in theirs]

    def executors(self) -> list[psutil.Process]:
        """The JVMs of the executors."""
        return executors(self.pid)

    def workers(self) -> list[psutil.Process]:
        """The Python workers of all executors."""
        return workers(self.pid)

    def await_end(self, timeout_s: float) -> bool:
        """Wait for it to end; return whether it did."""
        try:
            self._process.wait(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def kill(self) -> None:
        """SIGKILL Python, JVM and executors; return when none is left."""
        self.was_killed = True
        self.clean_up()

    def clean_up(self) -> None:
        """Kill the JVM and executors that outlive a dead driver."""
        kill_session(self.pid)
        self._process.wait(timeout=30)

    def end(self, *, timeout_s: float = 40.0) -> None:
        """Ask it to end; after ``timeout_s``, kill it."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            self.was_killed = True
        self.clean_up()

    def last_error(self, wanted: str = "") -> str:
        """The last line in its log with an error that contains ``wanted``; "" without one."""
        errors = [line for line in self._tail() if _names_an_error(line) and wanted in line]
        return errors[-1][:_ERROR_SHOWN] if errors else ""

    def last_words(self) -> str:
        """Its exit code, and the last line in its log: an error may have any name."""
        last = next(filter(None, reversed(self._tail())), "nothing in its log")
        return f"exit code {self.exit_code}: {last[:_ERROR_SHOWN]}"

    def _tail(self) -> list[str]:
        with self.log_file.open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - _TAIL_BYTES))
            return [line.strip() for line in log.read().decode(errors="replace").splitlines()]


def _names_an_error(line: str) -> bool:
    name = line.partition(":")[0]
    return name.startswith(("eos.errors.", "pyspark.errors.", "py4j.")) or name.endswith("Error")
