"""Killing what a Spark job is made of: its driver, with its JVM, and its executors."""

from __future__ import annotations

import contextlib
import os
import time
from typing import Final

import psutil

_POLL_S: Final = 0.01


def executors(driver_pid: int) -> list[psutil.Process]:
    """The executors' JVMs of a ``local-cluster`` driver that live, oldest first."""
    found = []
    for process in descendants(driver_pid):
        # One that was killed before, and not waited for yet, has no command line.
        with contextlib.suppress(psutil.Error):
            if "CoarseGrainedExecutorBackend" in " ".join(process.cmdline()):
                found.append(process)
    return sorted(found, key=lambda process: process.create_time())


def descendants(pid: int) -> list[psutil.Process]:
    """All that ``pid`` started, and what these started."""
    try:
        return list(psutil.Process(pid).children(recursive=True))
    except psutil.NoSuchProcess:
        return []


def kill_all(processes: list[psutil.Process], *, timeout_s: float = 30.0) -> None:
    """SIGKILL ``processes``; returns when none of them runs, or after ``timeout_s``."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    deadline = time.monotonic() + timeout_s
    # Not psutil.wait_procs: it also waits for zombies that nobody ever collects.
    while _alive(processes) and time.monotonic() < deadline:
        time.sleep(_POLL_S)


def kill_session(leader_pid: int, *, timeout_s: float = 30.0) -> None:
    """SIGKILL a driver that was started with ``start_new_session=True``, and all that it started.

    SIGKILL of a driver's Python leaves its JVM alive for a moment (tasks wrote 0.2 s longer,
    measured), no longer as its child: so the whole session of processes is looked through, and
    again until nothing is left: the JVM may start an executor while it is about to be killed.

    Raises:
        TimeoutError: something is left after ``timeout_s``.
    """
    deadline = time.monotonic() + timeout_s
    while family := _alive(descendants(leader_pid) + session_members(leader_pid)):
        if time.monotonic() > deadline:
            raise TimeoutError(f"alive after SIGKILL: {[process.pid for process in family]}")
        kill_all(family)


def session_members(leader_pid: int) -> list[psutil.Process]:
    """The processes of the session that ``leader_pid`` began, also when it has ended."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(OSError):
            if os.getsid(process.pid) == leader_pid:
                found.append(process)
    return found


def _alive(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Each once, without those that have ended and were not waited for."""
    found = {}
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                found[process.pid] = process
    return list(found.values())
