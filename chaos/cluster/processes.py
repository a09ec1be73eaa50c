"""Find, kill and stop the processes of a Spark job: driver, JVM, executors, Python workers."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from typing import Final

import psutil

_POLL_S: Final = 0.01


def executors(driver_pid: int) -> list[psutil.Process]:
    """The living executors' JVMs of a ``local-cluster`` driver, oldest first."""
    # A killed process that was not waited for has no command line.
    found = [
        p for p in descendants(driver_pid) if "CoarseGrainedExecutorBackend" in _command_line(p)
    ]
    return sorted(found, key=lambda process: process.create_time())


def workers(driver_pid: int) -> list[psutil.Process]:
    """The Python processes on the executors that run tasks, or wait for tasks."""
    daemons = [p for p in descendants(driver_pid) if "pyspark.daemon" in _command_line(p)]
    pids = {process.pid for process in daemons}
    # An executor starts a daemon, which forks workers with the same command line.
    return [process for process in daemons if _parent(process) in pids]


def _command_line(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def _parent(process: psutil.Process) -> int:
    try:
        return int(process.ppid())
    except psutil.Error:
        return 0


def descendants(pid: int) -> list[psutil.Process]:
    """All child processes of ``pid``, recursively."""
    try:
        return list(psutil.Process(pid).children(recursive=True))
    except psutil.NoSuchProcess:
        return []


def kill_all(processes: list[psutil.Process], *, timeout_s: float = 30.0) -> None:
    """SIGKILL ``processes``; return when none runs, or after ``timeout_s``."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    deadline = time.monotonic() + timeout_s
    # Not psutil.wait_procs: it also waits for zombies that are never collected.
    while _alive(processes) and time.monotonic() < deadline:
        time.sleep(_POLL_S)


@contextlib.contextmanager
def stopped(processes: list[psutil.Process]) -> Iterator[None]:
    """SIGSTOP ``processes`` while the block runs, then SIGCONT the remaining ones."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.suspend()
    try:
        yield
    finally:
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()


def kill_session(leader_pid: int, *, timeout_s: float = 30.0) -> None:
    """SIGKILL a driver that was started with ``start_new_session=True``, with all its processes.

    Raises:
        TimeoutError: a process is left after ``timeout_s``.
    """
    deadline = time.monotonic() + timeout_s
    # After SIGKILL of a driver's Python, its JVM lives for a moment (tasks wrote 0.2 s longer,
    # measured), but is no longer its child: so the session. And until none is left: the JVM may
    # start an executor just before it is killed.
    while family := _alive(descendants(leader_pid) + session_members(leader_pid)):
        if time.monotonic() > deadline:
            raise TimeoutError(f"alive after SIGKILL: {[process.pid for process in family]}")
        kill_all(family)


def session_members(leader_pid: int) -> list[psutil.Process]:
    """The processes of the session of ``leader_pid``, even if the leader has ended."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(OSError):
            if os.getsid(process.pid) == leader_pid:
                found.append(process)
    return found


def _alive(processes: list[psutil.Process]) -> list[psutil.Process]:
    found = {}
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                found[process.pid] = process
    return list(found.values())
