"""Child processes that tests start, and their certain end, JVMs included."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil

ROOT = Path(__file__).parent.parent.parent


def kill_tree(pid: int) -> None:
    """SIGKILL ``pid`` and all that it started; returns when they are gone."""
    try:
        root = psutil.Process(pid)
        family = [*root.children(recursive=True), root]
    except psutil.NoSuchProcess:
        return
    for process in family:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(family, timeout=30)


@contextmanager
def driver(
    module: str, *args: str, env: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """``python -m module args`` from the checkout, output kept; killed at the end, with its JVM.

    A driver that is SIGKILLed leaves its JVM alive for a moment (measured), and the JVM is not its
    child any more then: the whole session of processes is looked through.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", module, *args],
        cwd=ROOT,
        env={**os.environ, **(env or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        kill_tree(process.pid)
        for other in psutil.process_iter():
            try:
                if os.getsid(other.pid) == process.pid:
                    kill_tree(other.pid)
            except (ProcessLookupError, psutil.Error):
                continue
        process.communicate()
