"""The late-send hazard, caused with the raw client: the checker finds *vanished*."""

from __future__ import annotations

import pytest

from eos.chaos._records import text_of
from eos.chaos.checker.check import check
from eos.chaos.checker.history import AnomalyKind, Decision, ReaderSightings, Record, RunHistory
from eos.chaos.observers.readers import Watcher, drain
from eos.client import PulsarClient
from eos.protocol import State
from eos.testing import PulsarStandalone
from tests.transport.scripted import wait_until


@pytest.mark.broker
def test_late_send_makes_committed_records_vanish(name):
    topic = f"persistent://public/default/{name}"
    records = [Record(f"{epoch}/0", str(epoch), epoch) for epoch in range(3)]
    log: list[Decision] = []
    with PulsarStandalone() as broker, PulsarClient(broker.service_url, timeout_s=10) as client:
        producer = client.entry_producer(topic, create=True)

        def commit(record: Record) -> object:
            with client.transaction(timeout_s=60) as txn:
                producer.send(text_of(record.id).encode(), txn=txn)
            producers = frozenset({(topic, producer.name)})
            one = Decision(0, "q", record.epoch, 1, str(txn.id), State.OPEN, 0.0, producers)
            for state in (State.OPEN, State.PREPARED, State.COMMITTED):
                log.append(one._replace(seq=len(log) + 1, state=state))
            return txn.id

        with Watcher("watcher", broker.service_url, topic) as watcher:
            first = commit(records[0])
            wait_until(lambda: watcher.sightings)
            # Before the low-water mark moves: after that, the broker refuses (measured).
            with PulsarClient(broker.service_url, timeout_s=10) as other:
                zombie = other.join(first)
                zombie._registered.add(topic)  # the broken rule: it skips registration
                producer.send(text_of("9/9").encode(), txn=zombie).result(timeout=10)
            commit(records[1])
            commit(records[2])
            fresh = drain(broker.service_url, [topic], "fresh reader")
            history = RunHistory(
                records=tuple(records),
                fresh=fresh,
                decisions=tuple(log),
                readers=(ReaderSightings("watcher", tuple(watcher.sightings)),),
            )
    found = {anomaly.kind: anomaly for anomaly in check(history)}
    assert {AnomalyKind.VANISHED, AnomalyKind.LOST_WRITE} <= set(found)
    assert found[AnomalyKind.VANISHED].examples == (
        "watcher read record 0/0, which is no longer readable",
    )
