"""Faults of what recovery asks: the receipt topic is cut, deleted, or all of the cluster is gone.

Each befalls a transaction whose driver has died behind PREPARED: nobody can say any more whether
it was committed, and nobody may guess.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import pulsar

from chaos.anomalies import Kind
from chaos.faults.armed import Armed
from chaos.faults.fault import Act, Fault, Proof
from chaos.readers import open_client
from chaos.target import Target, path_of
from eos.client import PulsarClient
from eos.steps import Step

_TRIMMED_WITHIN_S: Final = 30.0
_STRANGER_S: Final = 300.0
_NEW: Final = b"in a new ledger"


def _delete(target: Target, topic: str) -> None:
    target.broker.admin("DELETE", f"{path_of(topic)}?force=true")


def _recreate(target: Target, topic: str) -> None:
    _delete(target, topic)
    target.broker.admin("PUT", path_of(topic))


def _trim(target: Target, topic: str) -> None:
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


def _befalls(damage: Callable[[Target, str], None]) -> Act:
    @contextmanager
    def act(target: Target) -> Iterator[Proof]:
        armed = Armed(target, Step.PREPARE, "kill", count=2)
        with target.supervisor.paused():
            if not armed.await_fired():
                yield Proof()
                return
            damage(target, target.receipt_topic())
        yield Proof(f"the receipts of {target.newest_txn()}, which was PREPARED")

    return act


@contextmanager
def _wiped(target: Target) -> Iterator[Proof]:
    """A fresh cluster at the old address, where a stranger's transaction bears our number."""
    armed = Armed(target, Step.PREPARE, "kill", count=2)
    with target.supervisor.paused():
        txn = target.newest_txn() if armed.await_fired() else None
        if txn is None:
            yield Proof()
            return
        target.broker.kill()
        for entry in ("metadata", "bookkeeper"):
            shutil.rmtree(target.broker.data_dir / entry)
        target.heal_broker()
        target.create_topic(len(target.topics))
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


def _fault(name: str, text: str, damage: Callable[[Target, str], None]) -> Fault:
    return Fault(
        name,
        "broker",
        f"{text}, with a transaction in doubt",
        _befalls(damage),
        ends_with="InDoubt",
        leaves=frozenset({Kind.STUCK}),
    )


FAULTS: Final = (
    _fault("receipts-deleted", "the receipt topic is deleted", _delete),
    _fault("receipts-recreated", "the receipt topic is deleted and created again", _recreate),
    _fault("receipts-trimmed", "the receipt topic is trimmed", _trim),
    Fault(
        "cluster-wiped",
        "broker",
        "the cluster is replaced by an empty one, with a transaction in doubt",
        _wiped,
        ends_with="InDoubt",
        leaves=frozenset({Kind.LOST_WRITE, Kind.VANISHED, Kind.STUCK}),
        wipes_all=True,
    ),
)
