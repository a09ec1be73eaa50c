"""Who is killed, and what to say of it."""

from __future__ import annotations

from eos.chaos.cluster.processes import kill_all
from eos.chaos.cluster.target import FaultTarget
from eos.chaos.faults._fault import pids


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
