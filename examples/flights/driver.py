"""The driver program as the demo sees it: a process that it starts, listens to, and kills."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from chaos.nemesis import executors, kill_all, kill_session
from examples.flights.job import Job


@dataclass(frozen=True)
class Event:
    """What the job told: ``started``, ``begin`` or ``end`` of an epoch, ``finished``; or, from
    here, ``died``. ``at``: ``time.time()`` seconds."""

    event: str
    epoch: int
    at: float


class Driver:
    """One life of the driver program; a context manager that leaves nothing of it behind."""

    def __init__(self, job: Job, log_file: Path, env: Mapping[str, str] | None = None) -> None:
        self._events: queue.Queue[Event] = queue.Queue()
        read_fd, write_fd = os.pipe()
        with log_file.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "examples.flights.job", job.to_json(), str(write_fd)],
                env={**os.environ, **_SPARK_ENV, **(env or {})},
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                pass_fds=[write_fd],
                start_new_session=True,
            )
        os.close(write_fd)
        threading.Thread(target=self._listen, args=(read_fd,), daemon=True).start()

    def _listen(self, read_fd: int) -> None:
        with os.fdopen(read_fd) as lines:
            for line in lines:
                self._events.put(Event(**json.loads(line)))
        self._process.wait()
        self._events.put(Event("died", -1, time.time()))

    def next_event(self, timeout_s: float) -> Event:
        """The next thing that happened.

        Raises:
            TimeoutError: nothing did.
        """
        try:
            return self._events.get(timeout=timeout_s)
        except queue.Empty:
            raise TimeoutError(f"the driver was silent for {timeout_s:.0f} s") from None

    def kill_an_executor(self) -> int:
        """SIGKILL the oldest executor; its pid.

        Raises:
            RuntimeError: there is none.
        """
        living = executors(self._process.pid)
        if not living:
            raise RuntimeError("no executor to kill")
        kill_all(living[:1])
        return living[0].pid

    def kill(self) -> None:
        """SIGKILL what is left of it: Python, JVM, executors."""
        kill_session(self._process.pid)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._process.wait(timeout=30)
        if self._process.stdin is not None:
            self._process.stdin.close()


_SPARK_ENV = {
    "SPARK_LOCAL_IP": "127.0.0.1",
    "SPARK_LOCAL_HOSTNAME": "localhost",
    "PYSPARK_PYTHON": sys.executable,
    "PYSPARK_DRIVER_PYTHON": sys.executable,
}
