"""Child processes of tests, which are always ended together with their JVMs."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from eos.chaos.cluster.processes import kill_session

ROOT = Path(__file__).parent.parent.parent


@contextmanager
def driver(
    module: str, *args: str, env: Mapping[str, str] | None = None, err: Path | None = None
) -> Iterator[subprocess.Popen[str]]:
    """``python -m module args`` from the checkout, with pipes; killed at the end, with its JVM.

    Args:
        err: a file for stderr, if the output is too long for a pipe.
    """
    with contextlib.ExitStack() as stack:
        stderr = subprocess.PIPE if err is None else stack.enter_context(err.open("w"))
        process = subprocess.Popen(
            [sys.executable, "-m", module, *args],
            cwd=ROOT,
            env={**os.environ, **(env or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        kill_session(process.pid)
        process.communicate()
