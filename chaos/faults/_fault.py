"""What a fault is: injected when its block begins, healed when it ends.

A block yields a ``Proof``: what was really hit. A fault that hit nothing has not happened.
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
    "stranger",
    "source",
]

QUERIES: Final[frozenset[QueryShape]] = frozenset({"stream", "scattered", "stateful", "grouped"})
"""Jobs that have a checkpoint of Spark's."""


@dataclass
class Proof:
    """Whether a fault happened, and to what; ``hit`` is "" as long as it has not.

    ``fired`` is set when it first acts; None: it has acted when its block begins.
    """

    hit: str = ""
    fired: threading.Event | None = None


Act = Callable[[FaultTarget], AbstractContextManager[Proof]]


@dataclass(frozen=True)
class Fault:
    """One named fault.

    Attributes:
        part: what it hits.
        is_survived: neither the driver nor a worker ends by it.
        ends_with: the error with which a job has to end, as nothing else would be right; "": it
            has to go on.
        leaves: what the fault itself does to the topic, and no sink can help.
        wipes_all: what others wrote to the cluster is gone, too.
        needs_keyless: it needs a topic with partitions that no key leads to.
        shapes: of the jobs that it can hit; empty: all.
        needs_input_topic: it hits the topic that the job reads.
        needs_own: only the harness's own workload has what it takes.
        servers: whether it needs a cluster of several brokers, or one that is all there is.
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
        """What it does, and what has to come of it where that is not to go on."""
        return self.text + (f"; the job has to end: {self.ends_with}" if self.ends_with else "")

    def runs_on(self, brokers: int) -> bool:
        """Whether it can happen to so many brokers."""
        return self.servers in ("any", "one" if brokers == 1 else "several")

    @property
    def is_drawn(self) -> bool:
        """Whether it may come in any schedule, with any other fault."""
        return not self.ends_with and not self.needs_keyless


def pids(processes: list[psutil.Process]) -> str:
    """For a proof; "" when there is none."""
    return ", ".join(f"pid {process.pid}" for process in processes)


def kill_executor(target: FaultTarget) -> str:
    """One of them, with its workers."""
    victims = target.supervisor.current.executors()[:1]
    kill_all(victims)
    return pids(victims)


def kill_workers(target: FaultTarget) -> str:
    """All Python workers."""
    victims = target.supervisor.current.workers()
    kill_all(victims)
    return pids(victims)


def kill_broker(target: FaultTarget) -> str:
    """That of the topic's first partition. It stays dead until it is healed."""
    return _kill_owner(target, target.topics[0])


def kill_coordinator(target: FaultTarget) -> str:
    """The broker that has the coordinator of the newest transaction, likewise."""
    return _kill_owner(target, target.coordinator_topic())


def _kill_owner(target: FaultTarget, topic: str) -> str:
    broker = target.broker_of(topic)
    pid = broker.pid
    target.strike()
    broker.kill()
    return f"pid {pid}"
