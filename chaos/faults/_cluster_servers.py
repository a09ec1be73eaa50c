"""Faults that only a cluster of several servers can have: a part of it is gone, or elsewhere."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from eos.chaos.cluster.proxy import FrameAction
from eos.chaos.cluster.target import FaultTarget, path_of
from eos.chaos.faults._fault import Act, Fault, Proof
from eos.ids import TopicName
from eos.standalone import BrokerNode, ClusterNode
from eos.wire import commands

Choice = Callable[[FaultTarget], list[ClusterNode]]


def _of_topic(target: FaultTarget) -> list[ClusterNode]:
    return [target.cluster.owner(target.topics[0])]


def _of_coordinator(target: FaultTarget) -> list[ClusterNode]:
    return [target.cluster.owner(target.coordinator_topic())]


def _of_both(target: FaultTarget) -> list[ClusterNode]:
    return list(dict.fromkeys(_of_topic(target) + _of_coordinator(target)))


def _all_brokers(target: FaultTarget) -> list[ClusterNode]:
    return list(target.cluster.brokers)


def _any_bookie(target: FaultTarget) -> list[ClusterNode]:
    return [random.choice(target.cluster.bookies)]


def _metadata_store(target: FaultTarget) -> list[ClusterNode]:
    return [target.cluster.metadata_store]


def _down(choose: Choice, how: Callable[[ClusterNode], None]) -> Act:
    """Servers are ended, and started again when the block ends."""

    @contextmanager
    def act(target: FaultTarget) -> Iterator[Proof]:
        victims = choose(target)
        hit = ", ".join(f"{victim.name} (pid {victim.pid})" for victim in victims)
        target.strike()
        for victim in victims:
            how(victim)
        try:
            yield Proof(hit)
        finally:
            target.heal_broker()

    return act


def _frozen(choose: Choice) -> Act:
    """Servers that say nothing for a while, and whom nobody misses yet."""

    @contextmanager
    def act(target: FaultTarget) -> Iterator[Proof]:
        victims = choose(target)
        target.strike()
        with ExitStack() as stack:
            for victim in victims:
                stack.callback(victim.resume)
                victim.pause()
            yield Proof(", ".join(f"{victim.name} (pid {victim.pid})" for victim in victims))

    return act


def _moved(find_topic: Callable[[FaultTarget], str], how: Callable[[BrokerNode], None]) -> Act:
    """A broker is dead, or sleeps, until another one has what it served; then it is there again."""

    @contextmanager
    def act(target: FaultTarget) -> Iterator[Proof]:
        topic = find_topic(target)
        broker = target.cluster.owner(topic)
        hit = f"{broker.name} (pid {broker.pid})"
        target.strike()
        how(broker)
        try:
            heir = target.await_new_owner(topic, broker)
            yield Proof(f"{hit}; {heir} took {topic} over")
        finally:
            broker.resume()
            target.heal_broker()  # one that slept and lost its session may end itself

    return act


def _first_topic(target: FaultTarget) -> str:
    return target.topics[0]


@contextmanager
def _isolated(target: FaultTarget) -> Iterator[Proof]:
    broker = target.cluster.owner(target.topics[0])
    target.strike()
    with target.proxy.isolated(broker.service_url) as count:
        yield Proof(f"{broker.name}, {count} connections" if count else "")


@contextmanager
def _told_of_the_dying(target: FaultTarget) -> Iterator[Proof]:
    """A look-up names a broker, which dies before it can be asked."""
    proof = Proof(fired=threading.Event())
    by_url: dict[str | None, BrokerNode] = {one.service_url: one for one in target.cluster.brokers}
    once = threading.Lock()

    def rule(answer: commands.LookupResponse) -> FrameAction:
        broker = by_url.get(answer.broker_url)
        if broker is not None and once.acquire(blocking=False):
            target.strike()
            proof.hit = f"{broker.name} (pid {broker.pid})"
            broker.kill()
            assert proof.fired is not None
            proof.fired.set()
        return FrameAction.PASS

    try:
        with target.proxy.fault(commands.LookupResponse, rule, times=1 << 30):
            target.proxy.cut_all()  # whoever comes back looks up first
            yield proof
    finally:
        target.heal_broker()


def _to_bundle(action: str) -> Act:
    """What an administrator does to the bundle of its namespace that the topic is in."""

    @contextmanager
    def act(target: FaultTarget) -> Iterator[Proof]:
        bundle = target.cluster.bundle(target.topics[0])
        namespace = TopicName.parse(target.topics[0]).namespace_name
        target.strike()
        target.broker.admin("PUT", f"/v2/namespaces/{namespace}/{bundle}/{action}")
        yield Proof(f"bundle {bundle}")

    return act


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
        "SIGKILL of the topic's broker, which is back when another one has the topic",
        _moved(_first_topic, BrokerNode.kill),
    ),
    _fault(
        "coordinator-broker-kill",
        "SIGKILL of the coordinator's broker, which is back when another one has the coordinator",
        _moved(FaultTarget.coordinator_topic, BrokerNode.kill),
    ),
    _fault(
        "both-brokers-kill",
        "SIGKILL of the topic's broker and of the coordinator's; they come back at once",
        _down(_of_both, ClusterNode.kill),
    ),
    _fault(
        "all-brokers-kill", "SIGKILL of all brokers at once", _down(_all_brokers, ClusterNode.kill)
    ),
    _fault(
        "broker-stop",
        "the topic's broker is shut down in order, and hands its topics over",
        _down(_of_topic, ClusterNode.stop),
    ),
    _fault(
        "coordinator-broker-slow",
        "SIGSTOP of the coordinator's broker, then SIGCONT, before anybody misses it",
        _frozen(_of_coordinator),
    ),
    _fault(
        "topic-broker-zombie",
        "the topic's broker sleeps until another one has the topic, then goes on",
        _moved(_first_topic, BrokerNode.pause),
    ),
    _fault(
        "coordinator-broker-zombie",
        "the coordinator's broker sleeps until another one has the coordinator, then goes on",
        _moved(FaultTarget.coordinator_topic, BrokerNode.pause),
    ),
    _fault("bundle-unload", "the topic's bundle is unloaded", _to_bundle("unload")),
    _fault(
        "bundle-split",
        "the topic's bundle is split, and unloaded",
        _to_bundle("split?unload=true"),
    ),
    _fault("receipts-unload", "the receipt topic is unloaded", _receipts_unloaded),
    _fault(
        "bookie-kill",
        "SIGKILL of a bookie; it comes back",
        _down(_any_bookie, ClusterNode.kill),
    ),
    _fault("bookie-slow", "SIGSTOP of a bookie, then SIGCONT", _frozen(_any_bookie)),
    _fault(
        "metadata-store-kill",
        "SIGKILL of the metadata store; it comes back",
        _down(_metadata_store, ClusterNode.kill),
    ),
    _fault("broker-cut-off", "the job can't reach the topic's broker; all others can", _isolated),
    _fault(
        "lookup-of-the-dying",
        "a look-up names a broker that is killed before it can be asked",
        _told_of_the_dying,
    ),
)
