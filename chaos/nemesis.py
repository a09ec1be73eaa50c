"""Kills processes of a Spark job: one executor, or a driver with everything that it started.

SIGKILL only: nobody gets to say goodbye. Needs ``psutil``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import psutil

_EXECUTOR_CLASS: Final = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
_POLL_S: Final = 0.02


@dataclass(frozen=True)
class Executor:
    """An executor's JVM. ``executor_id`` is Spark's own; replacements get new ones."""

    executor_id: str
    process: psutil.Process


class ProcessTree:
    """A process and all that it started, also what has lost its parent since.

    A child whose parent died belongs to init: no tree shows it any more. So what was seen once is
    remembered, and of a process that leads a session (``start_new_session=True``) all members of
    the session count. Start drivers that way.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._root = psutil.Process(pid)
        self._is_leader = os.getsid(pid) == pid
        self._known: set[psutil.Process] = {self._root}
        self.members()

    def members(self) -> list[psutil.Process]:
        """All processes of the tree that run; what has ended but was not waited for is not one."""
        for process in list(self._known):
            with suppress(psutil.Error):
                self._known.update(process.children(recursive=True))
        if self._is_leader:
            self._known.update(p for p in psutil.process_iter() if _session(p.pid) == self.pid)
        return [process for process in self._known if is_alive(process)]

    def executors(self) -> list[Executor]:
        """The executors' JVMs, in the order of their ids."""
        found = [executor for p in self.members() if (executor := _maybe_executor(p))]
        return sorted(found, key=lambda executor: int(executor.executor_id))

    def kill(self, *, timeout_s: float = 10.0) -> list[int]:
        """SIGKILL everything, repeated until nothing is left; the pids of what was killed.

        Raises:
            TimeoutError: something is left after ``timeout_s``.
        """
        killed: set[int] = set()
        deadline = time.monotonic() + timeout_s
        while members := self.members():
            for process in members:
                sigkill(process)
            killed.update(process.pid for process in members)
            if time.monotonic() > deadline:
                raise TimeoutError(f"still alive after SIGKILL: {[p.pid for p in members]}")
            await_end(members, timeout_s=_POLL_S)
        return sorted(killed)


def sigkill(process: psutil.Process) -> None:
    """SIGKILL one process; nothing when it has ended already."""
    with suppress(psutil.NoSuchProcess):
        process.kill()


def is_alive(process: psutil.Process) -> bool:
    """Whether it runs. A zombie, which its parent has yet to wait for, does not."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def await_end(processes: Iterable[psutil.Process], *, timeout_s: float) -> bool:
    """Wait until none of them runs; False when some do after ``timeout_s``."""
    deadline = time.monotonic() + timeout_s
    left = [process for process in processes if is_alive(process)]
    while left and time.monotonic() < deadline:
        time.sleep(_POLL_S)
        left = [process for process in left if is_alive(process)]
    return not left


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except (ProcessLookupError, PermissionError):
        return None


def _maybe_executor(process: psutil.Process) -> Executor | None:
    try:
        words = process.cmdline()
    except psutil.Error:
        return None
    if _EXECUTOR_CLASS not in words or "--executor-id" not in words:
        return None
    return Executor(words[words.index("--executor-id") + 1], process)
