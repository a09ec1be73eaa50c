"""Faults of the topics that a sink writes to: the receipts' topic and the job's."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Final, NamedTuple

import pulsar

from eos.chaos.checker.history import AnomalyKind
from eos.chaos.cluster.target import FaultTarget, path_of
from eos.chaos.faults._fault import Armed, Fault, Proof, acts, error_of_driver
from eos.chaos.observers.readers import open_client
from eos.client import PulsarClient
from eos.steps import Step
from eos.testing import PulsarStandalone

_TRIMMED_WITHIN_S: Final = 30.0
_OTHER_TTL_S: Final = 300.0
_NEW: Final = b"in a new ledger"
# The deleted messages, and the open transaction of the job that ends.
_LOST: Final = frozenset({AnomalyKind.LOST_WRITE, AnomalyKind.VANISHED, AnomalyKind.STUCK})


class _Damage(NamedTuple):
    name: str
    text: str
    do: Callable[[FaultTarget, str], None]
    is_gone: bool = False  # the topic no longer exists, or is as replication would create it


def delete(target: FaultTarget, topic: str) -> None:
    """Delete a topic with all its messages, even if it is in use."""
    target.broker.admin("DELETE", f"{path_of(topic)}?force=true")


def _recreate(target: FaultTarget, topic: str) -> None:
    delete(target, topic)
    target.broker.admin("PUT", path_of(topic))


def _trim(target: FaultTarget, topic: str) -> None:
    # Only a closed ledger is trimmed, and only when all of it is acknowledged.
    path = path_of(topic)
    with closing(open_client(target.broker.service_url)) as client:
        producer = client.create_producer(topic)
        target.broker.admin("POST", f"{path}/subscription/eos-receipts/skip_all")
        target.broker.admin("PUT", f"{path}/unload")
        producer.send(_NEW)  # creates the new ledger
        deadline = time.monotonic() + _TRIMMED_WITHIN_S
        while time.monotonic() < deadline:
            target.broker.admin("POST", f"{path}/trim")
            reader = client.create_reader(topic, pulsar.MessageId.earliest)
            first = reader.read_next(timeout_millis=5000).data()
            reader.close()
            if first == _NEW:
                return
    raise TimeoutError("the receipt topic was not trimmed")


_DAMAGES: Final = (
    _Damage("deleted", "the receipt topic is deleted", delete, is_gone=True),
    _Damage("recreated", "the receipt topic is deleted and created again", _recreate, is_gone=True),
    _Damage("trimmed", "the receipt topic is trimmed", _trim),
)


@acts
def _in_doubt(target: FaultTarget, damage: _Damage) -> Iterator[Proof]:
    armed = Armed(target, Step.PREPARE, "kill", count=2)
    with target.supervisor.paused():
        if not armed.await_fired():
            yield Proof()
            return
        damage.do(target, target.receipt_topic())
    # PREPARED and not committed: no log and no data prove its outcome. It is in doubt, and
    # nothing may be guessed, so the job must end.
    yield Proof(f"the receipts of {target.newest_txn()}, which was PREPARED")


@acts
def _survived_after(target: FaultTarget, damage: _Damage, step: Step) -> Iterator[Proof]:
    # Never PREPARED: the log proves that it was not committed. Committed: its data proves it.
    armed = Armed(target, step, "kill", count=2)
    with target.supervisor.paused():
        if not armed.await_fired():
            yield Proof()
            return
        damage.do(target, target.receipt_topic())
    hit = f"the receipts of {target.newest_txn()}, its driver died after step {step.number}"
    if damage.is_gone:
        # Without the topic, or its marks and subscription, a driver refuses the cluster as another
        # one. That is correct, and the operator's answer is documented.
        refused = error_of_driver(target, armed.driver.number + 1, "NewCluster")
        target.supervisor.change_job(on_new_cluster="continue")
        hit = refused and f"{hit}; {refused[:80]}; then told to continue"
    yield Proof(hit)


@contextmanager
def _wiped(target: FaultTarget) -> Iterator[Proof]:
    """An empty cluster at the same address, where another application has the same id."""
    # Ids of transactions begin again: ending one by its id could abort another application's.
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
        with PulsarClient(target.broker.service_url) as client:  # until the ids are the same
            other = client.transaction(timeout_s=_OTHER_TTL_S).id
            while other.least < txn.least:
                other = client.transaction(timeout_s=_OTHER_TTL_S).id
    proof = Proof()
    yield proof
    target.supervisor.await_failure(_OTHER_TTL_S)
    with PulsarClient(target.broker.service_url) as client:
        client.join(other).commit()  # fails if the sink has ended it by its id
    proof.hit = f"the cluster was emptied, and another application's {other} stayed open"


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
    for step, which in ((Step.OPEN, "open"), (Step.END, "committed, but not yet in the log")):
        yield Fault(
            f"receipts-{damage.name}-at-{step.label}",
            "broker",
            f"{damage.text}, with a dead driver's transaction: {which}{told}",
            _survived_after(damage, step),
            leaves_unknown=True,  # without the receipts' history
            needs_own=damage.is_gone,
        )


_AVRO: Final = {
    "type": "AVRO",
    "schema": '{"type":"record","name":"Order","fields":[{"name":"id","type":"long"}]}',
    "properties": {},
}
_SUBSCRIPTION: Final = "chaos-backlog"


@contextmanager
def _quota(target: FaultTarget) -> Iterator[Proof]:
    # A subscription that reads nothing: its backlog is the whole topic, and exceeds any quota.
    path = path_of(target.job.topic)
    log = target.driver_log()
    limit = {"limitSize": 1, "limitTime": -1, "policy": "producer_exception"}
    target.broker.admin("PUT", f"{path}/subscription/{_SUBSCRIPTION}", {"earliest": True})
    target.broker.admin("POST", f"{path}/backlogQuota?backlogQuotaType=destination_storage", limit)
    try:
        yield Proof(log.await_line("backlog quota"))
    finally:
        target.broker.admin("DELETE", f"{path}/backlogQuota?backlogQuotaType=destination_storage")
        target.broker.admin("DELETE", f"{path}/subscription/{_SUBSCRIPTION}?force=true")


@contextmanager
def _schema(target: FaultTarget) -> Iterator[Proof]:
    """Give the topic a schema, and have producers validated against it."""
    log = target.driver_log()
    tail = target.job.topic.partition("://")[2]
    enforcement = f"{path_of(target.job.topic)}/schemaValidationEnforced"
    target.broker.admin("POST", f"/v2/schemas/{tail}/schema", _AVRO)
    target.broker.admin("POST", enforcement, True)
    # Producers that a driver keeps open would not be asked for a schema.
    target.broker.admin("PUT", f"{path_of(target.job.topic)}/unload")
    try:
        yield Proof(log.await_line("IncompatibleSchema"))
    finally:
        target.broker.admin("POST", enforcement, False)
        target.broker.admin("DELETE", f"/v2/schemas/{tail}/schema?force=true")


@contextmanager
def _deleted(target: FaultTarget) -> Iterator[Proof]:
    path = path_of(target.job.topic)
    target.broker.admin("DELETE", f"{path}/partitions?force=true")
    yield Proof(f"{target.job.topic} was deleted")


FAULTS: Final = (
    *(_ending(damage) for damage in _DAMAGES),
    *(fault for damage in _DAMAGES for fault in _survived(damage)),
    Fault(
        "cluster-wiped",
        "broker",
        "the cluster is replaced by an empty one, with a transaction in doubt",
        _wiped,
        ends_with="NewCluster",
        leaves=_LOST,
        wipes_all=True,
        servers="one",
    ),
    Fault("quota", "topic", "the topic's backlog quota is exceeded for a while", _quota),
    Fault("schema-changed", "topic", "the topic requires a schema for a while", _schema),
    Fault(
        "topic-deleted",
        "topic",
        "the topic is deleted with all its messages",
        _deleted,
        ends_with="TopicNotFound",
        # Also a part of the epoch that was being written; and readers see a hole.
        leaves=_LOST | {AnomalyKind.TORN_EPOCH, AnomalyKind.SKIP},
    ),
)
