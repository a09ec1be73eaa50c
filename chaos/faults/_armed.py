"""Faults in the next driver: armed failpoints, and damage that it must refuse at its start."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Literal

import psutil

from eos.chaos.cluster.driver_process import DriverProcess
from eos.chaos.cluster.target import FaultTarget
from eos.steps import AnyStep

ArmedAction = Literal["kill", "stop", "error"]

_REACHED_WITHIN_S: Final = 240.0
_ENDS_WITHIN_S: Final = 240.0
_POLL_S: Final = 0.05


class Armed:
    """Kills the driver and starts the next one with a failpoint at ``place``.

    Args:
        count: act when the process reaches it for the n-th time.
        after_death_at: first let a driver die after this step, and arm the one after it.
        then: more failpoints for the same driver.
        env: more environment variables.
    """

    def __init__(
        self,
        target: FaultTarget,
        place: AnyStep,
        action: ArmedAction,
        *,
        count: int = 1,
        after_death_at: AnyStep | None = None,
        then: str = "",
        env: Mapping[str, str] | None = None,
    ) -> None:
        folder = Path(tempfile.mkdtemp(prefix="fired-", dir=target.job.scratch_dir))
        self._folder, self._place = folder, place
        fired = {"EOS_FAILPOINTS_FIRED": str(folder)}
        setting = f"{place.label}={action}@{count}"
        envs = [{"EOS_FAILPOINTS": f"{setting},{then}", **fired, **(env or {})}]
        if after_death_at is not None:  # the second time, in the middle of the stream
            envs.insert(0, {"EOS_FAILPOINTS": f"{after_death_at.label}=kill@2"})
        target.supervisor.arm(*envs)
        before = target.supervisor.kill().number
        if after_death_at is not None:
            if not target.supervisor.await_driver(before + 1).await_end(_REACHED_WITHIN_S):
                raise TimeoutError(f"no driver reached {after_death_at.label} twice")
            before += 1
        self.driver: DriverProcess = target.supervisor.await_driver(before + 1)

    def await_fired(self, place: AnyStep | None = None) -> int:
        """The id of the process that acted, at the failpoint or at ``place``; 0 if none did."""
        marker = self._folder / (place or self._place).label
        deadline = time.monotonic() + _REACHED_WITHIN_S
        while not (pid := _pid_in(marker)) and time.monotonic() < deadline:
            if not self.driver.is_alive:
                return _pid_in(marker)
            time.sleep(_POLL_S)
        return pid

    def await_asleep(self, place: AnyStep | None = None) -> psutil.Process | None:
        """The process that stopped, at the failpoint or at ``place``; None if none did."""
        try:
            process = psutil.Process(self.await_fired(place))
            while process.status() != psutil.STATUS_STOPPED:
                time.sleep(_POLL_S)
        except psutil.NoSuchProcess:
            return None
        return process


def _pid_in(marker: Path) -> int:
    return int((marker.read_text() if marker.exists() else "") or 0)


def refused(
    target: FaultTarget,
    wanted: str,
    *,
    break_it: Callable[[], object],
    heal_it: Callable[[], object],
) -> str:
    """Kill the driver, break something, wait until the next driver ends, then heal.

    Returns:
        The error of the next driver; "" if it did not end, or if its error lacks ``wanted``.
    """
    with target.supervisor.paused():
        number = target.supervisor.kill().number
        break_it()
    try:
        return error_of_driver(target, number + 1, wanted)
    finally:
        with target.supervisor.paused():
            target.supervisor.kill_all()
            heal_it()


def error_of_driver(target: FaultTarget, number: int, wanted: str) -> str:
    """The error that the driver ends with; "" if it does not end, or if it lacks ``wanted``."""
    driver = target.supervisor.await_driver(number)
    error = driver.last_error() if driver.await_end(_ENDS_WITHIN_S) else ""
    return error if wanted in error else ""
