"""Keeps a job's driver running, as any cluster manager does: one that has died is started again."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from eos.chaos.checker.history import Operation
from eos.chaos.cluster.driver_log import log_of
from eos.chaos.cluster.driver_process import DriverProcess
from eos.chaos.job import Job

_POLL_S = 0.05
_RESTART_S = 0.5
MAX_FAILURES = 4
"""A driver that fails by itself so often, with no epoch done in between, is not worth a restart."""


class JobFailed(RuntimeError):
    """The driver ends again and again; ``error`` is what it ended with the last time."""

    def __init__(self, count: int, error: str) -> None:
        super().__init__(f"the driver ended {count} times; the last time: {error}")
        self.error = error


class DriverSupervisor:
    """A context manager; at its end no driver is left.

    Args:
        project: folder that the driver runs in.
        tell: gets one line of text for each life that begins or ends.
        max_lives: how often the driver may be started; a job that needs more does not get on.
        max_failures: how often it may fail by itself with no epoch done in between.
    """

    def __init__(
        self,
        job: Job,
        log_folder: Path,
        *,
        project: Path,
        tell: Callable[[str], None],
        max_lives: int = 25,
        max_failures: int = MAX_FAILURES,
    ) -> None:
        self.operations: list[Operation] = []
        self.restarted_at: list[float] = []
        self._job = job
        self.log_folder = log_folder
        self._project = project
        self._tell = tell
        self._lock = threading.RLock()
        self._lives: list[DriverProcess] = []
        self._count = 0
        self._failures = 0
        self._limits = (max_lives, max_failures)
        self._ending = threading.Event()
        self._failure: JobFailed | None = None
        self._is_paused = False
        self._watch = threading.Thread(target=self._run, name="supervisor", daemon=True)
        self._envs: list[dict[str, str]] = []

    def __enter__(self) -> DriverSupervisor:
        self._begin()
        self._watch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end_all(DriverProcess.kill)

    @property
    def current(self) -> DriverProcess:
        """The youngest driver that lives; waits for its start when there is none.

        Raises:
            RuntimeError: the job has ended.
        """
        while not self._ending.is_set():
            with self._lock:
                for life in reversed(self._lives):
                    if life.is_alive:
                        return life
            time.sleep(_POLL_S)
        raise RuntimeError("the job has ended")

    def check(self) -> None:
        """Nothing, while the job gets on.

        Raises:
            JobFailed: its driver has died too often.
        """
        if self._failure is not None:
            raise self._failure

    def await_failure(self, timeout_s: float) -> None:
        """Returns when the job gets on no more, or after ``timeout_s``."""
        deadline = time.monotonic() + timeout_s
        while self._failure is None and time.monotonic() < deadline:
            time.sleep(_POLL_S)

    def progress(self) -> None:
        """An epoch was done: what failed before has been got over."""
        self._failures = 0

    def arm(self, *envs: Mapping[str, str]) -> None:
        """The environment of the next life, and of those after it: for failpoints."""
        with self._lock:
            self._envs = [dict(env) for env in envs]

    def change_job(self, **values: Any) -> None:
        """What the operator changes, from the next life on; fields of ``Job``."""
        with self._lock:
            self._job = replace(self._job, **values)

    def await_driver(self, number: int) -> DriverProcess:
        """The life of this number, or a later one, as soon as it has begun.

        Raises:
            RuntimeError: the job has ended.
        """
        while (life := self.current).number < number:
            time.sleep(_POLL_S)
        return life

    def kill(self) -> DriverProcess:
        """SIGKILL the youngest driver with all that it started; the watch starts the next one."""
        life = self.current
        life.kill()
        return life

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """No driver is started while the block runs."""
        self._is_paused = True
        try:
            yield
        finally:
            self._is_paused = False

    def kill_all(self) -> None:
        """SIGKILL every driver that lives."""
        with self._lock:
            for life in self._lives:
                if life.is_alive:
                    life.kill()

    @contextlib.contextmanager
    def rival(self) -> Iterator[tuple[DriverProcess, DriverProcess]]:
        """A second driver of the same job, beside the first: both of them, the older one first.

        At the block's end the older one goes.
        """
        older = self.current
        with self._lock:
            self._begin()
            younger = self._lives[-1]
        try:
            yield older, younger
        finally:
            with self._lock:
                if older in self._lives and older.is_alive:
                    older.kill()

    def end(self) -> None:
        """End the job in an orderly way; returns when no driver is left."""
        self._end_all(DriverProcess.end)

    def _end_all(self, how: Callable[[DriverProcess], None]) -> None:
        self._ending.set()
        self._watch.join(timeout=60)
        with self._lock:
            for life in self._lives:
                how(life)
                self._note(life)
            self._lives.clear()

    def _run(self) -> None:
        while not self._ending.wait(_POLL_S):
            with self._lock:
                self._clean_up_dead()
                is_missing = not self._lives and not self._is_paused
            if is_missing and not self._ending.wait(_RESTART_S):
                with self._lock:
                    if not self._is_paused:
                        self._begin()
                        self.restarted_at.append(time.time())

    def _clean_up_dead(self) -> None:
        for life in [life for life in self._lives if not life.is_alive]:
            life.clean_up()
            self._lives.remove(life)
            self._note(life)

    def _begin(self) -> None:
        self._count += 1
        for count, limit in zip((self._count - 1, self._failures), self._limits, strict=True):
            if count >= limit:
                error = self.operations[-1].detail if self.operations else ""
                self._failure = JobFailed(count, error)
                self._ending.set()
                return
        env = self._envs.pop(0) if self._envs else {}
        log = log_of(self.log_folder, self._count)
        life = DriverProcess(self._job, self._count, log, project=self._project, env=env)
        self._lives.append(life)
        self._tell(f"driver started, life {self._count}")

    def _note(self, life: DriverProcess) -> None:
        if life.was_signalled:
            outcome, detail = "unknown", "killed"
        elif life.exit_code == 0:
            outcome, detail = "ok", "ended"
        else:
            outcome, detail = "fail", life.last_error() or f"exit code {life.exit_code}"
            self._failures += 1
        self._tell(f"driver of life {life.number}: {detail}")
        self.operations.append(
            Operation(f"driver run {life.number}", life.began_at, time.time(), outcome, detail)  # type: ignore[arg-type]
        )
