"""Arming failpoints: the next driver, or one of its workers, is to do something to itself."""

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
    """Kills the driver; the next one finds ``place`` armed.

    Args:
        count: act when the process is there for the n-th time.
        behind: the next driver dies behind this first, and only the one after it is armed.
        then: more settings for the same driver.
        env: more of its environment.
    """

    def __init__(
        self,
        target: FaultTarget,
        place: AnyStep,
        action: ArmedAction,
        *,
        count: int = 1,
        behind: AnyStep | None = None,
        then: str = "",
        env: Mapping[str, str] | None = None,
    ) -> None:
        folder = Path(tempfile.mkdtemp(prefix="fired-", dir=target.job.scratch_dir))
        self._folder, self._place = folder, place
        fired = {"EOS_FAILPOINTS_FIRED": str(folder)}
        setting = f"{place.label}={action}@{count}"
        envs = [{"EOS_FAILPOINTS": f"{setting},{then}", **fired, **(env or {})}]
        if behind is not None:  # in mid-stream: the second time
            envs.insert(0, {"EOS_FAILPOINTS": f"{behind.label}=kill@2"})
        target.supervisor.arm(*envs)
        before = target.supervisor.kill().number
        if behind is not None:
            target.supervisor.await_driver(before + 1).await_end(_REACHED_WITHIN_S)
            before += 1
        self.life: DriverProcess = target.supervisor.await_driver(before + 1)

    def await_fired(self, place: AnyStep | None = None) -> int:
        """The process id of whoever acted, there or at another ``place``; 0 when nobody did."""
        marker = self._folder / (place or self._place).label
        deadline = time.monotonic() + _REACHED_WITHIN_S
        while not (pid := _pid_in(marker)) and time.monotonic() < deadline:
            if not self.life.is_alive:
                return _pid_in(marker)
            time.sleep(_POLL_S)
        return pid

    def await_asleep(self, place: AnyStep | None = None) -> psutil.Process | None:
        """Whoever went to sleep, there or at another ``place``; None when nobody did."""
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
    """Kill the driver, break something, let the next one end by it, and put it right again.

    Returns:
        The error that it ended with; "" when it did not end, or ``wanted`` is not in the error.
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
    """The error that this driver ends with; "" when it goes on, or ``wanted`` is not in it."""
    life = target.supervisor.await_driver(number)
    error = life.last_error() if life.await_end(_ENDS_WITHIN_S) else ""
    return error if wanted in error else ""
