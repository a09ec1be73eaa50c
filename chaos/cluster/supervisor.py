"""Keeps a job's driver running: restarts it when it has died, like a cluster manager."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from eos.chaos.checker.history import Operation
from eos.chaos.cluster.driver_process import DriverProcess, log_of
from eos.chaos.job import Job

_POLL_S = 0.05
_RESTART_S = 0.5
# Failures of a driver, without a finished epoch in between, before it is not restarted.
MAX_FAILURES = 4


class JobFailed(RuntimeError):
    """Raised when the driver fails repeatedly; ``error`` is its last error."""

    def __init__(self, count: int, error: str) -> None:
        super().__init__(f"the driver ended {count} times; the last time: {error}")
        self.error = error


class DriverSupervisor:
    """A context manager; at its end, no driver is left."""

    def __init__(
        self,
        job: Job,
        log_folder: Path,
        *,
        project: Path,  # working directory of the driver
        tell: Callable[[str], None],  # gets a line of text for each start and end of a driver
        max_starts: int = 25,  # a job that needs more makes no progress
        max_failures: int = MAX_FAILURES,
    ) -> None:
        self.operations: list[Operation] = []
        self.restarted_at: list[float] = []
        self._job = job
        self.log_folder = log_folder
        self._project = project
        self._tell = tell
        self._lock = threading.RLock()
        self._drivers: list[DriverProcess] = []
        self._count = 0
        self._failures = 0
        self._limits = (max_starts, max_failures)
        self._ending = threading.Event()
        self._failure: RuntimeError | None = None
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
        """The youngest living driver; or the next one.

        Raises:
            RuntimeError: the job has ended.
        """
        while not self._ending.is_set():
            with self._lock:
                # The youngest: an older one may just be fenced.
                for driver in reversed(self._drivers):
                    if driver.is_alive:
                        return driver
            time.sleep(_POLL_S)
        raise RuntimeError("the job has ended")

    def check(self) -> None:
        """Check that the job makes progress.

        Raises:
            JobFailed: its driver has died too often.
            RuntimeError: a driver can't be started, or cleaned up.
        """
        if self._failure is not None:
            raise self._failure

    def await_failure(self, timeout_s: float) -> None:
        """Wait until the job has failed, or for ``timeout_s``."""
        deadline = time.monotonic() + timeout_s
        while self._failure is None and time.monotonic() < deadline:
            time.sleep(_POLL_S)

    def progress(self) -> None:
        """Reset the count of failures: an epoch is done."""
        self._failures = 0

    def arm(self, *envs: Mapping[str, str]) -> None:
        """Set more environment variables of the next drivers, one mapping each: for failpoints."""
        with self._lock:
            self._envs = [dict(env) for env in envs]

    def change_job(self, **values: Any) -> None:
        """Change fields of ``Job`` for the next drivers, like an operator."""
        with self._lock:
            self._job = replace(self._job, **values)

    def await_driver(self, number: int) -> DriverProcess:
        """Wait for the driver of this number, or a later one.

        Raises:
            RuntimeError: the job has ended.
        """
        while (driver := self.current).number < number:
            time.sleep(_POLL_S)
        return driver

    def kill(self) -> DriverProcess:
        """SIGKILL the youngest driver with all its processes; the next one is then started."""
        driver = self.current
        driver.kill()
        return driver

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Start no driver while the block runs."""
        self._is_paused = True
        try:
            yield
        finally:
            self._is_paused = False

    def kill_all(self) -> None:
        """SIGKILL all living drivers."""
        with self._lock:
            for driver in self._drivers:
                if driver.is_alive:
                    driver.kill()

    @contextlib.contextmanager
    def rival(self) -> Iterator[tuple[DriverProcess, DriverProcess]]:
        """Run a second driver of the same job at the same time; yield the older and the younger."""
        older = self.current
        with self._lock:
            self._begin()
            younger = self._drivers[-1]
        try:
            yield older, younger
        finally:
            with self._lock:  # the younger one continues; the older one may be gone already
                if older in self._drivers and older.is_alive:
                    older.kill()

    def end(self) -> None:
        """End the job gracefully; return when no driver is left."""
        self._end_all(DriverProcess.end)

    def _end_all(self, how: Callable[[DriverProcess], None]) -> None:
        self._ending.set()
        self._watch.join(timeout=60)
        with self._lock:
            for driver in self._drivers:
                how(driver)
                self._note(driver)
            self._drivers.clear()

    def _run(self) -> None:
        try:
            self._restart_dead()
        except Exception as error:  # such as a full disk; nobody else would hear of it
            why = f"the driver can't be restarted: {type(error).__name__}: {error}"
            self._failure = RuntimeError(why)
            self._ending.set()

    def _restart_dead(self) -> None:
        while not self._ending.wait(_POLL_S):
            with self._lock:
                self._clean_up_dead()
                is_missing = not self._drivers and not self._is_paused
            if is_missing and not self._ending.wait(_RESTART_S):
                with self._lock:
                    if not self._is_paused:  # a fault may have begun in the meantime
                        self._begin()
                        self.restarted_at.append(time.time())

    def _clean_up_dead(self) -> None:
        for driver in [driver for driver in self._drivers if not driver.is_alive]:
            driver.clean_up()
            self._drivers.remove(driver)
            self._note(driver)

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
        driver = DriverProcess(self._job, self._count, log, project=self._project, env=env)
        self._drivers.append(driver)
        self._tell(f"driver {self._count} started")

    def _note(self, driver: DriverProcess) -> None:
        # A killed driver has not failed: it may have done anything before.
        if driver.was_signalled:
            outcome, detail = "unknown", "killed"
        elif driver.exit_code == 0:
            outcome, detail = "ok", "ended"
        else:
            outcome, detail = "fail", driver.last_error() or driver.last_words()
            self._failures += 1
        self._tell(f"driver {driver.number}: {detail}")
        self.operations.append(
            Operation(f"driver run {driver.number}", driver.began_at, time.time(), outcome, detail)  # type: ignore[arg-type]
        )
