"""The supervisor's own failure is told, and a driver ends with the harness."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import ClassVar

import pytest

from eos.chaos.cluster import supervisor
from eos.chaos.job import Job

JOB = Job("tests.chaos.cluster.test_supervisor:hang", "", "", "t", "s", "", "", "", "")
# Its session would take seconds.
_DRIVER = """
import sys
from eos.chaos.cluster import _driver
from eos.chaos.job import Job
_driver._session = lambda job: None
_driver._STOP_GRACE_S = 0.1
_driver.main(Job.from_json(sys.argv[1]))
"""


def hang(*_: object) -> None:
    """A workload that does not return, such as one that awaits its query itself."""
    time.sleep(60)


def test_driver_whose_workload_does_not_return_ends_with_the_harness():
    driver = subprocess.Popen([sys.executable, "-c", _DRIVER, JOB.to_json()], stdin=subprocess.PIPE)
    try:
        assert driver.stdin is not None
        driver.stdin.close()
        assert driver.wait(timeout=20) == -9
    finally:
        driver.kill()


class OnlyOnce:
    """A driver that dies when it is asked to; there is no space for another one."""

    started: ClassVar[list[OnlyOnce]] = []
    number, began_at, is_alive, was_signalled = 1, 0.0, True, True

    def __init__(self, *_: object, **__: object) -> None:
        if self.started:
            raise OSError(28, "No space left on device")
        self.started.append(self)

    def kill(self) -> None:
        self.is_alive = False

    clean_up = kill


def test_driver_that_cant_be_restarted_fails_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr(OnlyOnce, "started", [])
    monkeypatch.setattr(supervisor, "DriverProcess", OnlyOnce)
    monkeypatch.setattr(supervisor, "_RESTART_S", 0.0)
    tell = lambda _: None  # noqa: E731
    with supervisor.DriverSupervisor(JOB, tmp_path, project=tmp_path, tell=tell) as running:
        running.check()
        running.current.kill()
        running.await_failure(10)
        with pytest.raises(RuntimeError, match=r"can't be restarted: OSError: .*No space left"):
            running.check()
        with pytest.raises(RuntimeError, match="the job has ended"):
            _ = running.current
