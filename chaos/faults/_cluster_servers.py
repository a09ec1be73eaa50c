"""Faults of a cluster of several servers: one is dead, slow, isolated, or moves its topics."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Final

from eos.chaos.cluster.target import FaultTarget, path_of
from eos.chaos.faults._fault import Act, Fault, Proof, acts, at_first
from eos.ids import TopicName
from eos.testing import BrokerNode, ClusterNode
from eos.wire import commands

Choice = Callable[[FaultTarget], list[ClusterNode]]


def _of_topic(target: FaultTarget) -> list[ClusterNode]:
    return [target.cluster.owner(target.topics[0])]


def _of_coordinator(target: FaultTarget) -> list[ClusterNode]:
    return [target.cluster.owner(target.coordinator_topic())]


def _of_both(target: FaultTarget) -> list[ClusterNode]:
    return list(dict.fromkeys(_of_topic(target) + _of_coordinator(target)))


def _any_bookie(target: FaultTarget) -> list[ClusterNode]:
    return [random.choice(target.cluster.bookies)]


def _running(servers: Sequence[ClusterNode]) -> str:
    """Those that run, for a proof: a dead one can't be hit."""
    pids = {server.name: server.pid for server in servers}
    return ", ".join(f"{name} (pid {pid})" for name, pid in pids.items() if pid is not None)


@acts
def _down(
    target: FaultTarget, choose: Choice, how: Callable[[ClusterNode], None]
) -> Iterator[Proof]:
    """Stop servers, and restart them at the end of the block."""
    victims = choose(target)
    hit = _running(victims)
    target.strike()
    for victim in victims:
        how(victim)
    try:
        yield Proof(hit)
    finally:
        target.heal_broker()


@acts
def _frozen(target: FaultTarget, choose: Choice) -> Iterator[Proof]:
    """SIGSTOP servers, for less than the session timeout."""
    # So nothing moves: clients wait for a server that is slow and still responsible.
    victims = choose(target)
    target.strike()
    with ExitStack() as stack:
        for victim in victims:
            stack.callback(victim.resume)
            victim.pause()
        yield Proof(_running(victims))


@acts
def _moved(
    target: FaultTarget, find_topic: Callable[[FaultTarget], str], how: Callable[[BrokerNode], None]
) -> Iterator[Proof]:
    """Kill or stop a broker until another one serves its topics, then bring it back."""
    topic = find_topic(target)
    broker = target.cluster.owner(topic)
    hit = _running([broker])
    target.strike()
    how(broker)
    try:
        # Only then: one that is back before its session times out keeps its topics.
        successor = target.await_new_owner(topic, broker)
        yield Proof(hit and f"{hit}; {successor} took over {topic}")
    finally:
        broker.resume()
        target.heal_broker()  # a stopped broker that lost its session may exit


def _first_topic(target: FaultTarget) -> str:
    return target.topics[0]


@contextmanager
def _isolated(target: FaultTarget) -> Iterator[Proof]:
    broker = target.cluster.owner(target.topics[0])
    target.strike()
    # In the proxy, so for the job only: the cluster sees no fault.
    with target.proxy.isolated(broker.service_url) as count:
        yield Proof(f"{broker.name}, {count} connections" if count else "")


@contextmanager
def _lookup_of_the_dying(target: FaultTarget) -> Iterator[Proof]:
    by_url: dict[str | None, BrokerNode] = {one.service_url: one for one in target.cluster.brokers}

    def kill(answer: commands.LookupResponse) -> str:
        broker = by_url[answer.broker_url]
        hit = _running([broker])
        target.strike()
        broker.kill()
        return hit

    def names_one(answer: commands.LookupResponse) -> bool:
        return answer.broker_url in by_url

    with at_first(target, commands.LookupResponse, kill, counts=names_one) as proof:
        target.proxy.cut_all()  # clients reconnect with a lookup
        yield proof


@acts
def _to_bundle(target: FaultTarget, action: str) -> Iterator[Proof]:
    """An administrator's action on the namespace bundle of the topic."""
    bundle = target.cluster.bundle(target.topics[0])
    namespace = TopicName.parse(target.topics[0]).namespace_name
    target.strike()
    target.broker.admin("PUT", f"/v2/namespaces/{namespace}/{bundle}/{action}")
    yield Proof(f"bundle {bundle}")


@contextmanager
def _receipts_unloaded(target: FaultTarget) -> Iterator[Proof]:
    topic = target.receipt_topic()
    if topic:
        target.strike()
        target.broker.admin("PUT", f"{path_of(topic)}/unload")
    yield Proof(topic)


def _fault(name: str, text: str, act: Act) -> Fault:
    return Fault(name, "cluster", text, act, is_survived=True, servers="several")


FAULTS: Final = (
    _fault(
        "topic-broker-kill",
        "SIGKILL of the topic's broker; restarted when another one serves the topic",
        _moved(_first_topic, BrokerNode.kill),
    ),
    _fault(
        "coordinator-broker-kill",
        "SIGKILL of the coordinator's broker; restarted when another one has the coordinator",
        _moved(FaultTarget.coordinator_topic, BrokerNode.kill),
    ),
    _fault(
        "both-brokers-kill",
        "SIGKILL of the topic's broker and of the coordinator's; restarted at once",
        _down(_of_both, ClusterNode.kill),
    ),
    _fault(
        "all-brokers-kill",
        "SIGKILL of all brokers at once",
        _down(lambda target: list(target.cluster.brokers), ClusterNode.kill),
    ),
    _fault(
        "broker-stop",
        "the topic's broker is shut down gracefully, and its topics move",
        _down(_of_topic, ClusterNode.stop),
    ),
    _fault(
        "coordinator-broker-slow",
        "SIGSTOP of the coordinator's broker, then SIGCONT before its session times out",
        _frozen(_of_coordinator),
    ),
    _fault(
        "topic-broker-zombie",
        "SIGSTOP of the topic's broker until another one serves the topic, then SIGCONT",
        _moved(_first_topic, BrokerNode.pause),
    ),
    _fault(
        "coordinator-broker-zombie",
        "SIGSTOP of the coordinator's broker until another one has the coordinator, then SIGCONT",
        _moved(FaultTarget.coordinator_topic, BrokerNode.pause),
    ),
    _fault("bundle-unload", "the topic's bundle is unloaded", _to_bundle("unload")),
    _fault(
        "bundle-split",
        "the topic's bundle is split and unloaded",
        _to_bundle("split?unload=true"),
    ),
    _fault("receipts-unload", "the receipt topic is unloaded", _receipts_unloaded),
    _fault(
        "bookie-kill",
        "SIGKILL of a bookie, then a restart",
        _down(_any_bookie, ClusterNode.kill),
    ),
    _fault("bookie-slow", "SIGSTOP of a bookie, then SIGCONT", _frozen(_any_bookie)),
    _fault(
        "metadata-store-kill",
        "SIGKILL of the metadata store, then a restart",
        _down(lambda target: [target.cluster.metadata_store], ClusterNode.kill),
    ),
    _fault(
        "broker-cut-off", "the job can't reach the topic's broker; other clients can", _isolated
    ),
    _fault(
        "lookup-of-the-dying",
        "a broker is killed as soon as a lookup names it",
        _lookup_of_the_dying,
    ),
)
