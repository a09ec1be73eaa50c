"""A killed session has no processes left, including the driver's orphans."""

from __future__ import annotations

import signal
import subprocess
import sys

import psutil

from eos.chaos.cluster.processes import kill_session

_PARENT = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print(child.pid, flush=True)
time.sleep(60)
"""


def test_a_killed_drivers_orphans_are_found_and_killed():
    with subprocess.Popen(
        [sys.executable, "-c", _PARENT], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as parent:
        assert parent.stdout is not None
        orphan = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
        assert parent.wait() == -signal.SIGKILL
        assert orphan.is_running()
        kill_session(parent.pid)
        assert not orphan.is_running() or orphan.status() == psutil.STATUS_ZOMBIE
