"""A fault is a context manager: injected when its block begins, healed when it ends.

The block yields a ``Proof`` of what was hit. A fault that hit nothing does not count.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final, Literal

import psutil

from eos.chaos.checker.anomalies import AnomalyKind
from eos.chaos.cluster.processes import kill_all
from eos.chaos.cluster.target import FaultTarget
from eos.chaos.job import QueryShape

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
        is_survived: neither the driver nor a worker dies of it.
        ends_with: the error with which the job must end; "" if it must continue.
        leaves: anomalies that the fault itself causes and no sink can prevent.
        wipes_all: it also deletes what others wrote to the cluster.
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
