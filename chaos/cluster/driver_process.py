"""One life of the driver program: a process that is started, killed, stopped, or told to end."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import psutil

from eos.chaos.cluster.processes import descendants, executors, kill_session, workers
from eos.chaos.cluster.spark_env import spark_env
from eos.chaos.job import Job, prepare

_TAIL_BYTES = 64 * 1024
_SHOWN = 800


class DriverProcess:
    """Starts the driver of ``job`` at once.

    Args:
        project: folder that it runs in; its modules come before any that are installed.
        env: more variables of its environment.

    Attributes:
        number: which life it is, from 1; its scratch folder is its own.
        began_at: ``time.time()`` of its start.
        was_killed: by us; not by a failpoint of its own.
    """

    def __init__(
        self,
        job: Job,
        number: int,
        log_file: Path,
        *,
        project: Path,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.number = number
        self.began_at = time.time()
        self.log_file = log_file
        self.was_killed = False
        scratch = Path(job.scratch_dir) / f"life-{number}"
        mine = replace(job, scratch_dir=str(scratch))
        prepare(mine)
        with log_file.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "eos.chaos.cluster._driver", mine.to_json()],
                cwd=project,
                env={**os.environ, **spark_env(scratch, path=(project,)), **(env or {})},
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Of the driver's Python."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """Of its Python; negative: the signal that killed it. None while it runs."""
        return self._process.poll()

    @property
    def was_signalled(self) -> bool:
        """Whether it was killed, by itself or by others: nobody knows how far it got."""
        return self.was_killed or (self.exit_code or 0) < 0

    @property
    def is_alive(self) -> bool:
        """Whether its Python runs, or is stopped."""
        return self.exit_code is None

    def driver_processes(self) -> list[psutil.Process]:
        """Python and JVM of the driver itself, without executors and what they started."""
        others = executors(self.pid)
        theirs = {p.pid for one in others for p in (one, *descendants(one.pid))}
        family = [psutil.Process(self.pid), *descendants(self.pid)]
        return [process for process in family if process.pid not in theirs]

    def executors(self) -> list[psutil.Process]:
        """The executors' JVMs."""
        return executors(self.pid)

    def workers(self) -> list[psutil.Process]:
        """The Python workers on all executors."""
        return workers(self.pid)

    def await_end(self, timeout_s: float) -> bool:
        """Give it time to end by itself; whether it did."""
        try:
            self._process.wait(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def kill(self) -> None:
        """SIGKILL of Python, JVM and executors; returns when none of them is left."""
        self.was_killed = True
        self.clean_up()

    def clean_up(self) -> None:
        """End what a dead driver has left: its JVM and executors may outlive it."""
        kill_session(self.pid)
        self._process.wait(timeout=30)

    def end(self, *, timeout_s: float = 40.0) -> None:
        """Ask it to end, then make it end."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            self.was_killed = True
        self.clean_up()

    def last_error(self) -> str:
        """The last line of its log that names an error; "" when it has none."""
        with self.log_file.open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - _TAIL_BYTES))
            lines = log.read().decode(errors="replace").splitlines()
        errors = [line.strip() for line in lines if _names_an_error(line)]
        return errors[-1][:_SHOWN] if errors else ""


def _names_an_error(line: str) -> bool:
    name = line.strip().partition(":")[0]
    return name.startswith(("eos.errors.", "pyspark.errors.", "py4j.")) or name.endswith("Error")
