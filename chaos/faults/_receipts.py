"""Faults of what recovery asks: the receipt topic is cut, deleted, or all of the cluster is gone.

Each hits a transaction whose driver has died. Of one that was never PREPARED the log alone says
that nobody has committed it; one that was committed is proved by its data; and of one in doubt
between the two nobody can say anything any more, and nobody may guess.

Where the topic itself is gone, a driver takes the cluster for another one and refuses it. That is
right, and the operator's answer is documented: ``on_new_cluster="continue"``, once.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

import pulsar

from eos.chaos.checker.anomalies import AnomalyKind
from eos.chaos.cluster.target import FaultTarget, path_of
from eos.chaos.faults._armed import Armed, error_of_driver
from eos.chaos.faults._fault import Act, Fault, Proof
from eos.chaos.observers.readers import open_client
from eos.client import PulsarClient
from eos.standalone import PulsarStandalone
from eos.steps import Step

_TRIMMED_WITHIN_S: Final = 30.0
_STRANGER_S: Final = 300.0
_NEW: Final = b"in a new ledger"


class _Damage(NamedTuple):
    """What happens to a receipt topic. ``is_gone``: a driver finds none of that name."""

    name: str
    text: str
    do: Callable[[FaultTarget, str], None]
    is_gone: bool = False


def delete(target: FaultTarget, topic: str) -> None:
    """Delete a topic, with all that was in it and whoever uses it."""
    target.broker.admin("DELETE", f"{path_of(topic)}?force=true")


def _recreate(target: FaultTarget, topic: str) -> None:
    delete(target, topic)
    target.broker.admin("PUT", path_of(topic))


def _trim(target: FaultTarget, topic: str) -> None:
    """All is acknowledged, a new ledger begun, and the old one thrown away."""
    path = path_of(topic)
    client = open_client(target.broker.service_url)
    try:
        producer = client.create_producer(topic)
        target.broker.admin("POST", f"{path}/subscription/eos-receipts/skip_all")
        target.broker.admin("PUT", f"{path}/unload")
        producer.send(_NEW)
        deadline = time.monotonic() + _TRIMMED_WITHIN_S
        while time.monotonic() < deadline:
            target.broker.admin("POST", f"{path}/trim")
            reader = client.create_reader(topic, pulsar.MessageId.earliest)
            first = reader.read_next(timeout_millis=5000).data()
            reader.close()
            if first == _NEW:
                return
    finally:
        client.close()
    raise TimeoutError("the receipt topic was not trimmed")


_DAMAGES: Final = (
    _Damage("deleted", "the receipt topic is deleted", delete, is_gone=True),
    _Damage("recreated", "the receipt topic is deleted and created again", _recreate),
    _Damage("trimmed", "the receipt topic is trimmed", _trim),
)


def _in_doubt(damage: _Damage) -> Act:
    @contextmanager
    def act(target: FaultTarget) -> Iterator[Proof]:
        armed = Armed(target, Step.PREPARE, "kill", count=2)
        with target.supervisor.paused():
            if not armed.await_fired():
                yield Proof()
                return
            damage.do(target, target.receipt_topic())
        yield Proof(f"the receipts of {target.newest_txn()}, which was PREPARED")

    return act


def _got_over(damage: _Damage, step: Step) -> Act:
    """Behind ``step`` the log, or the data, knows what the receipts would have said."""

    @contextmanager
    def act(target: FaultTarget) -> Iterator[Proof]:
        armed = Armed(target, step, "kill", count=2)
        with target.supervisor.paused():
            if not armed.await_fired():
                yield Proof()
                return
            damage.do(target, target.receipt_topic())
        hit = f"the receipts of {target.newest_txn()}, its driver dead behind step {step.number}"
        if damage.is_gone:
            refused = error_of_driver(target, armed.life.number + 1, "NewCluster")
            target.supervisor.change_job(on_new_cluster="continue")
            hit = refused and f"{hit}; {refused[:80]}; then told to continue"
        yield Proof(hit)

    return act


@contextmanager
def _wiped(target: FaultTarget) -> Iterator[Proof]:
    """A fresh cluster at the old address, where a stranger's transaction bears our number."""
    armed = Armed(target, Step.PREPARE, "kill", count=2)
    with target.supervisor.paused():
        txn = target.newest_txn() if armed.await_fired() else None
        if txn is None:
            yield Proof()
            return
        broker = target.broker
        assert isinstance(broker, PulsarStandalone)
        broker.kill()
        for entry in ("metadata", "bookkeeper"):
            shutil.rmtree(broker.data_dir / entry)
        target.heal_broker()
        target.create_topics()
        with PulsarClient(target.broker.service_url) as client:
            stranger = client.transaction(timeout_s=_STRANGER_S).id
            while stranger.least < txn.least:
                stranger = client.transaction(timeout_s=_STRANGER_S).id
    proof = Proof()
    yield proof
    target.supervisor.await_failure(_STRANGER_S)
    with PulsarClient(target.broker.service_url) as client:
        client.join(stranger).commit()  # fails if anybody has ended it by its number
    proof.hit = f"nothing was left, and {stranger} was a stranger's and stayed open"


def _ending(damage: _Damage) -> Fault:
    return Fault(
        f"receipts-{damage.name}",
        "broker",
        f"{damage.text}, with a transaction in doubt",
        _in_doubt(damage),
        ends_with="NewCluster" if damage.is_gone else "InDoubt",
        leaves=frozenset({AnomalyKind.STUCK}),
    )


def _survived(damage: _Damage) -> Iterator[Fault]:
    told = "; its driver is told to continue" if damage.is_gone else ""
    for step, which in (
        (Step.OPEN, "one that is open"),
        (Step.END, "one that is committed, which the log does not know yet"),
    ):
        yield Fault(
            f"receipts-{damage.name}-at-{step.label}",
            "broker",
            f"{damage.text}, with a dead driver's transaction: {which}{told}",
            _got_over(damage, step),
            needs_own=damage.is_gone,
        )


FAULTS: Final = (
    *(_ending(damage) for damage in _DAMAGES),
    *(fault for damage in _DAMAGES for fault in _survived(damage)),
    Fault(
        "cluster-wiped",
        "broker",
        "the cluster is replaced by an empty one, with a transaction in doubt",
        _wiped,
        ends_with="NewCluster",
        leaves=frozenset({AnomalyKind.LOST_WRITE, AnomalyKind.VANISHED, AnomalyKind.STUCK}),
        wipes_all=True,
        servers="one",
    ),
)
