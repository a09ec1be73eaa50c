"""Child processes that tests start, and their certain end, JVMs included."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from chaos.cluster.processes import kill_session

ROOT = Path(__file__).parent.parent.parent


@contextmanager
def driver(
    module: str, *args: str, env: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """``python -m module args`` from the checkout, with pipes; killed at the end, with its JVM."""
    process = subprocess.Popen(
        [sys.executable, "-m", module, *args],
        cwd=ROOT,
        env={**os.environ, **(env or {})},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        kill_session(process.pid)
        process.communicate()
