"""A fault is a context manager: injected when its block begins, healed when it ends."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Concatenate, Final, Literal, ParamSpec, TypeVar

import psutil

from eos.chaos._spark_checkpoint import Checkpoint
from eos.chaos.checker.history import AnomalyKind
from eos.chaos.cluster.driver_process import DriverProcess
from eos.chaos.cluster.processes import kill_all
from eos.chaos.cluster.proxy import FrameAction
from eos.chaos.cluster.target import FaultTarget
from eos.chaos.job import QueryShape
from eos.steps import AnyStep
from eos.wire.messages import WireMessage

# fmt: off
HitPart = Literal[
    "driver", "executor", "network", "broker", "cluster", "log",
    "rival", "topic", "input", "user", "client", "source", "storage", "archive",
    "state", "database",
]
# fmt: on

# Jobs with a Spark checkpoint.
QUERIES: Final[frozenset[QueryShape]] = frozenset({"stream", "scattered", "stateful", "grouped"})


@dataclass
class Proof:
    """What a fault hit; "" until it has hit something.

    ``fired`` is set when the fault first acts; None if it acts before its block begins.
    """

    # A fault that hit nothing proves nothing, so the report does not count it.
    hit: str = ""
    fired: threading.Event | None = None


class Violated(Exception):
    """Raised by a fault that has found a violation itself: the run is not good."""


Act = Callable[[FaultTarget], AbstractContextManager[Proof]]
_Args = ParamSpec("_Args")


def acts(
    function: Callable[Concatenate[FaultTarget, _Args], Iterator[Proof]],
) -> Callable[_Args, Act]:
    """Make a function that returns an act for its arguments; ``function`` gets the target first."""
    made = contextmanager(function)

    # The list of faults has the arguments; the target exists only during a run.
    def act_for(*args: _Args.args, **kwargs: _Args.kwargs) -> Act:
        return lambda target: made(target, *args, **kwargs)

    return act_for


@dataclass(frozen=True)
class Fault:
    """One named fault."""

    name: str
    part: HitPart  # of the system, which it hits
    text: str
    act: Act
    is_survived: bool = False  # the driver and the workers survive it
    ends_with: str = ""  # the error with which the job must end; "" if it must continue
    leaves: frozenset[AnomalyKind] = frozenset()  # caused by the fault; no sink can prevent them
    leaves_unknown: bool = False  # `eos recovery verify` may not be able to check all afterwards
    wipes_all: bool = False  # it also deletes other clients' messages
    needs_keyless: bool = False  # it needs an empty partition: keys would soon reach all
    shapes: frozenset[QueryShape] = frozenset()  # of queries that it can hit; empty for all
    needs_own: bool = False  # it needs the harness's own workload
    needs_input_topic: bool = False  # it hits the topic that the job reads
    needs: str = ""  # the condition that it needs
    servers: Literal["any", "one", "several"] = "any"  # standalone, or a cluster

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
    pid = broker.pid  # gone after the kill
    target.strike()
    broker.kill()
    return f"pid {pid}" if pid is not None else ""


_Answer = TypeVar("_Answer")
ArmedAction = Literal["kill", "stop", "error"]

WITHIN_S: Final = 240.0
_POLL_S: Final = 0.1


def ask(
    check: Callable[[], _Answer], timeout_s: float = WITHIN_S, *, poll_s: float = _POLL_S
) -> _Answer:
    """Repeat ``check`` until its answer is true, or time is up; return the last answer."""
    deadline = time.monotonic() + timeout_s
    while not (answer := check()) and time.monotonic() < deadline:
        time.sleep(poll_s)
    return answer


@contextmanager
def at_first(
    target: FaultTarget,
    kind: type[WireMessage],
    hit: Callable[[Any], str],
    *,
    counts: Callable[[Any], bool] = lambda _: True,
    action: FrameAction = FrameAction.PASS,
) -> Iterator[Proof]:
    """Call ``hit`` while the proxy holds the first command of ``kind`` that counts.

    Then ``action`` is applied to the command. Afterwards a dead broker is restarted.
    """
    fired = threading.Event()
    proof = Proof(fired=fired)
    # Each direction of a connection has a thread in the proxy, so two may judge at once.
    once = threading.Lock()

    def rule(command: Any) -> FrameAction:
        if not counts(command) or not once.acquire(blocking=False):
            return FrameAction.PASS
        proof.hit = hit(command)
        fired.set()
        return action

    try:
        with target.proxy.fault(kind, rule):
            yield proof
    finally:
        target.heal_broker()


class Armed:
    """Kills the driver and starts the next one with a failpoint at ``place``."""

    def __init__(
        self,
        target: FaultTarget,
        place: AnyStep,
        action: ArmedAction,
        *,
        count: int = 1,  # act when the process reaches it for the n-th time
        after_death_at: AnyStep | None = None,  # a driver dies there first; the next one is armed
        then: str = "",  # more failpoints for the same driver
        env: Mapping[str, str] | None = None,
    ) -> None:
        folder = Path(tempfile.mkdtemp(prefix="fired-", dir=target.job.scratch_dir))
        self._folder, self._place = folder, place
        fired = {"EOS_FAILPOINTS_FIRED": str(folder)}
        setting = f"{place.label}={action}@{count}"
        envs = [{"EOS_FAILPOINTS": f"{setting},{then}", **fired, **(env or {})}]
        if after_death_at is not None:
            # The second time: in the middle of the stream, when there is something to lose.
            envs.insert(0, {"EOS_FAILPOINTS": f"{after_death_at.label}=kill@2"})
        target.supervisor.arm(*envs)
        before = target.supervisor.kill().number
        if after_death_at is not None:
            if not target.supervisor.await_driver(before + 1).await_end(WITHIN_S):
                raise TimeoutError(f"no driver reached {after_death_at.label} twice")
            before += 1
        self.driver: DriverProcess = target.supervisor.await_driver(before + 1)

    def await_fired(self, place: AnyStep | None = None) -> int:
        """The id of the process that acted, at the failpoint or at ``place``; 0 if none did."""
        marker = self._folder / (place or self._place).label
        ask(lambda: _pid_in(marker) or not self.driver.is_alive)
        # Again: it may have written its id just before its end.
        return _pid_in(marker)

    def await_asleep(self, place: AnyStep | None = None) -> psutil.Process | None:
        """The process that stopped, at the failpoint or at ``place``; None if none did."""
        try:
            process = psutil.Process(self.await_fired(place))  # there is no process 0 either
            # The id is written before the process stops itself. A dead one never does.
            ends = (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE)
            ask(lambda: process.status() in ends, WITHIN_S)
            return process if process.status() == psutil.STATUS_STOPPED else None
        except psutil.NoSuchProcess:
            return None


def _pid_in(marker: Path) -> int:
    # Created first and written then, so it may be empty.
    return int((marker.read_text() if marker.exists() else "") or 0)


def refused(
    target: FaultTarget,
    wanted: str,
    *,
    break_it: Callable[[], object],
    heal_it: Callable[[], object],
    is_sure: bool = True,
) -> str:
    """Kill the driver, break something, and heal it when the next driver has ended.

    Returns the error of the next driver; "" if it did not end, or if its error lacks ``wanted``.

    Raises:
        Violated: ``is_sure``, and it was not refused.
    """
    with target.supervisor.paused():  # no driver may start before it is broken
        number = target.supervisor.kill().number
        break_it()
    try:
        return error_of_driver(target, number + 1, wanted, must_end=is_sure)
    finally:
        with target.supervisor.paused():
            # A driver that did not refuse would use the files that are exchanged now.
            target.supervisor.kill_all()
            heal_it()


def resolve(target: FaultTarget) -> int:
    """Run ``eos recovery resolve --apply`` beside the job; return its exit code.

    Raises:
        Violated: it crashed.
    """
    ended = target.recovery("resolve", "--apply", "--yes")
    if "Traceback" in ended.stderr:  # its exit code is that of a finding
        raise Violated(f"resolve crashed: {ended.stderr[-500:]}")
    return ended.returncode


def error_of_driver(
    target: FaultTarget, number: int, wanted: str, *, must_end: bool = False
) -> str:
    """The driver's last error with ``wanted`` in it; "" without one, or if it does not end.

    Raises:
        Violated: it ``must_end``, and has finished an epoch instead.
    """
    checkpoint = Checkpoint(target.job.checkpoint)
    noted = checkpoint.noted()
    driver = target.supervisor.await_driver(number)
    if driver.await_end(WITHIN_S):
        # While it ends, its JVM may log errors of connections.
        return driver.last_error(wanted)
    # Without further input it has nothing to refuse; other sinks need not.
    later = sorted(set(checkpoint.noted()) - set(noted))
    if must_end and later and driver.number == number and target.has_log:
        raise Violated(f"driver {number} finished epoch {later[0]} instead of ending with {wanted}")
    return ""
