"""What a fault is, and what faults share."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import psutil

from eos.chaos.checker.anomalies import AnomalyKind
from eos.chaos.cluster.driver_process import DriverProcess
from eos.chaos.cluster.processes import kill_all
from eos.chaos.cluster.target import FaultTarget
from eos.chaos.job import QueryShape
from eos.steps import AnyStep

HitPart = Literal[
    "driver",
    "executor",
    "network",
    "broker",
    "cluster",
    "log",
    "rival",
    "topic",
    "input",
    "user",
    "client",
    "source",
]

QUERIES: Final[frozenset[QueryShape]] = frozenset({"stream", "scattered", "stateful", "grouped"})
"""Jobs with a Spark checkpoint."""


@dataclass
class Proof:
    """What a fault hit; "" until it has hit something.

    ``fired`` is set when the fault first acts; None if it acts before its block begins.
    """

    hit: str = ""
    fired: threading.Event | None = None


Act = Callable[[FaultTarget], AbstractContextManager[Proof]]


@dataclass(frozen=True)
class Fault:
    """One named fault.

    Attributes:
        part: the part of the system that it hits.
        is_survived: the driver and the workers survive it.
        ends_with: the error with which the job must end; "" if it must continue.
        leaves: anomalies that the fault itself causes and no sink can prevent.
        wipes_all: it also deletes other clients' messages.
        needs_keyless: it needs an empty partition, and so records without keys.
        shapes: query shapes that it can hit; empty for all.
        needs_input_topic: it hits the topic that the job reads.
        needs_own: it needs the harness's own workload.
        servers: whether it needs a cluster of several brokers, or a standalone one.
    """

    name: str
    part: HitPart
    text: str
    act: Act
    is_survived: bool = False
    ends_with: str = ""
    leaves: frozenset[AnomalyKind] = frozenset()
    wipes_all: bool = False
    needs_keyless: bool = False
    shapes: frozenset[QueryShape] = frozenset()
    needs_own: bool = False
    needs_input_topic: bool = False
    servers: Literal["any", "one", "several"] = "any"

    @property
    def summary(self) -> str:
        """The description, with the error that must end the job, if any."""
        return self.text + (f"; the job must end with {self.ends_with}" if self.ends_with else "")

    def runs_on(self, brokers: int) -> bool:
        """Whether it can happen with this number of brokers."""
        return self.servers in ("any", "one" if brokers == 1 else "several")

    @property
    def is_drawn(self) -> bool:
        """Whether random schedules may contain it, with any other fault."""
        return not self.ends_with and not self.needs_keyless


def pids(processes: list[psutil.Process]) -> str:
    """Process ids, for a proof."""
    return ", ".join(f"pid {process.pid}" for process in processes)


def kill_executor(target: FaultTarget) -> str:
    """SIGKILL one executor with its workers."""
    victims = target.supervisor.current.executors()[:1]
    kill_all(victims)
    return pids(victims)


def kill_workers(target: FaultTarget) -> str:
    """SIGKILL all Python workers."""
    victims = target.supervisor.current.workers()
    kill_all(victims)
    return pids(victims)


def kill_broker(target: FaultTarget) -> str:
    """SIGKILL the broker of the topic's first partition, until it is healed."""
    return _kill_owner(target, target.topics[0])


def kill_coordinator(target: FaultTarget) -> str:
    """SIGKILL the broker of the newest transaction's coordinator, until it is healed."""
    return _kill_owner(target, target.coordinator_topic())


def _kill_owner(target: FaultTarget, topic: str) -> str:
    broker = target.broker_of(topic)
    pid = broker.pid
    target.strike()
    broker.kill()
    return f"pid {pid}"


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
