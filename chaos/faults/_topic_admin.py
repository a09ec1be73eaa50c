"""Faults of the job's topic, caused by its administrators."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from eos.chaos.checker.anomalies import AnomalyKind
from eos.chaos.cluster.target import FaultTarget, path_of
from eos.chaos.faults._fault import Fault, Proof

_AVRO: Final = {
    "type": "AVRO",
    "schema": '{"type":"record","name":"Order","fields":[{"name":"id","type":"long"}]}',
    "properties": {},
}
_SUBSCRIPTION: Final = "chaos-backlog"


@contextmanager
def _quota(target: FaultTarget) -> Iterator[Proof]:
    """An unused subscription, and no quota for its backlog."""
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
    Fault("quota", "topic", "the topic's backlog quota is exceeded for a while", _quota),
    Fault("schema-changed", "topic", "the topic requires a schema for a while", _schema),
    Fault(
        "topic-deleted",
        "topic",
        "the topic is deleted with all its messages",
        _deleted,
        ends_with="TopicNotFound",
        leaves=frozenset(
            {
                AnomalyKind.LOST_WRITE,
                AnomalyKind.VANISHED,
                AnomalyKind.TORN_EPOCH,
                AnomalyKind.STUCK,
                AnomalyKind.SKIP,
            }
        ),
    ),
)
