"""A process of the driver program: started, killed, stopped, or asked to end."""

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
    """Starts a driver of ``job`` immediately.

    Args:
        project: working directory; its modules take precedence over installed ones.
        env: more environment variables.

    Attributes:
        number: of the driver, from 1. Each has its own scratch folder.
        began_at: ``time.time()`` of its start.
        was_killed: by the harness, not by a failpoint.
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
        scratch = Path(job.scratch_dir) / f"driver-{number}"
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
        """The process id of the driver's Python."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """The exit code of its Python, negative for a signal; None while it runs."""
        return self._process.poll()

    @property
    def was_signalled(self) -> bool:
        """Whether it was killed, by itself or by others: its progress is unknown."""
        return self.was_killed or (self.exit_code or 0) < 0

    @property
    def is_alive(self) -> bool:
        """Whether its Python runs or is stopped."""
        return self.exit_code is None

    def driver_processes(self) -> list[psutil.Process]:
        """Python and JVM of the driver, without executors and their child processes."""
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

    def last_error(self) -> str:
        """The last line in its log with an error; "" if there is none."""
        with self.log_file.open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - _TAIL_BYTES))
            lines = log.read().decode(errors="replace").splitlines()
        errors = [line.strip() for line in lines if _names_an_error(line)]
        return errors[-1][:_SHOWN] if errors else ""


def _names_an_error(line: str) -> bool:
    name = line.strip().partition(":")[0]
    return name.startswith(("eos.errors.", "pyspark.errors.", "py4j.")) or name.endswith("Error")
