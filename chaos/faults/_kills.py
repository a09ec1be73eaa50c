"""Who is killed, and what to say of it."""

from __future__ import annotations

from chaos.cluster.processes import kill_all
from chaos.cluster.target import FaultTarget
from chaos.faults._fault import pids


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
    """It stays dead until it is healed."""
    pid = target.broker.pid
    target.broker.kill()
    return f"pid {pid}"
