"""Faults of the broker: it dies, or moves what it serves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from eos.chaos.cluster.target import FaultTarget, path_of
from eos.chaos.faults._fault import Fault, Proof
from eos.chaos.faults._kills import kill_broker


@contextmanager
def _broker_kill(target: FaultTarget) -> Iterator[Proof]:
    killed = kill_broker(target)
    try:
        yield Proof(killed)
    finally:
        target.heal_broker()


@contextmanager
def _unload(target: FaultTarget) -> Iterator[Proof]:
    for topic in target.topics:
        target.broker.admin("PUT", f"{path_of(topic)}/unload")
    yield Proof(f"{len(target.topics)} partitions")


@contextmanager
def _coordinator_move(target: FaultTarget) -> Iterator[Proof]:
    topic = target.coordinator_topic()
    target.broker.admin("PUT", f"{path_of(topic)}/unload")
    yield Proof(topic)


FAULTS: Final = (
    Fault("broker-kill", "broker", "SIGKILL of the broker, then a start again", _broker_kill, True),
    Fault("unload", "broker", "all partitions of the topic are unloaded", _unload, True),
    Fault("coordinator-move", "broker", "the coordinator is unloaded", _coordinator_move, True),
)
