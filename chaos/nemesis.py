"""Killing what a Spark job is made of: its driver, with its JVM, and its executors."""

from __future__ import annotations

import contextlib
import os

import psutil


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
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def kill_all(processes: list[psutil.Process]) -> None:
    """SIGKILL ``processes``; returns when they are gone."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(processes, timeout=30)


def kill_session(leader_pid: int) -> None:
    """SIGKILL a driver that was started with ``start_new_session=True``, and all that it started.

    SIGKILL of a driver's Python leaves its JVM alive for a moment (tasks wrote 0.2 s longer,
    measured), no longer as its child: so the whole session of processes is looked through.
    """
    family = descendants(leader_pid)
    for process in psutil.process_iter():
        with contextlib.suppress(OSError, psutil.Error):
            if os.getsid(process.pid) == leader_pid:
                family += [process, *process.children(recursive=True)]
    kill_all(list({process.pid: process for process in family}.values()))
