"""Jobs that use Spark Connect: a real server, and a client without Spark's JVM."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).parents[2]


def run_connect_job(module: str, *args: str) -> str:
    """Run ``python -m module args``, which starts the server; return its output."""
    env = {
        **os.environ,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        # A free port instead of 15002, which another test's server or broker may use.
        "SPARK_TESTING": "1",
    }
    ended = subprocess.run(
        [sys.executable, "-m", module, *args],
        capture_output=True,
        text=True,
        timeout=180,
        cwd=_ROOT,
        env=env,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    return ended.stdout
