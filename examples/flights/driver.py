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
from contextlib import suppress
from pathlib import Path
from typing import Self

import psutil

from chaos.cluster.processes import executors, kill_all, kill_session
from chaos.cluster.spark_env import spark_env
from examples.flights.job import FlightsJob
from examples.flights.run import Event

_ROOT = Path(__file__).parent.parent.parent


class Driver:
    """One life of the driver program; a context manager that leaves nothing of it behind."""

    def __init__(
        self, job: FlightsJob, log_file: Path, env: Mapping[str, str] | None = None
    ) -> None:
        self._events: queue.Queue[Event] = queue.Queue()
        read_fd, write_fd = os.pipe()
        with log_file.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "examples.flights.job", job.to_json(), str(write_fd)],
                cwd=_ROOT,
                env={
                    **os.environ,
                    **spark_env(Path(job.scratch_dir), path=(_ROOT,)),
                    **(env or {}),
                },
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
                # The last line may be half a one: its writer was killed.
                with suppress(json.JSONDecodeError):
                    self._events.put(Event(**json.loads(line)))
        self._process.wait()
        # At once, not when somebody asks for the next event: the JVM must not live on.
        self.kill()
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

    @property
    def exit_code(self) -> int | None:
        """Of its Python; negative: the signal that killed it. None while it runs."""
        return self._process.poll()

    def maybe_kill_an_executor(self) -> int | None:
        """SIGKILL the oldest executor; its pid, or None when none runs."""
        living: list[psutil.Process] = executors(self._process.pid)
        if not living:
            return None
        kill_all(living[:1])
        return int(living[0].pid)

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
