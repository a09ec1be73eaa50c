"""Other clients of the receipt topic: foreign messages, a consumer, an operator who deletes it."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any, Final

import pulsar

from eos.chaos.cluster.target import FaultTarget
from eos.chaos.faults._broker_faults import is_over
from eos.chaos.faults._fault import WITHIN_S, Act, Armed, Fault, Proof
from eos.chaos.faults._topic_faults import delete
from eos.chaos.observers.readers import open_client
from eos.protocol import LogRecord, State
from eos.pulsar.part import EMPTY_PART, pulsar_part
from eos.pulsar.receipts import SUBSCRIPTION
from eos.steps import Step

_POLL_S: Final = 0.1
# Number of epochs that are made to run again: one by an answer, one by a closing.
_HARMED: Final = 2
_CHUNKED: Final = 6 << 20  # more than an entry may have, so it arrives in chunks


@contextmanager
def _foreign(target: FaultTarget) -> Iterator[Proof]:
    topic = target.receipt_topic()
    if not topic:
        yield Proof()
        return
    sent = 0
    with closing(open_client(target.broker.service_url)) as client:
        producer = client.create_producer(topic, chunking_enabled=True, batching_enabled=False)
        producer.send(os.urandom(_CHUNKED), properties={"eos": "receipt", "uuid": "6 MB"})
        harmed: set[tuple[str | None, str | None]] = set()
        deadline = time.monotonic() + WITHIN_S
        while len(harmed) < _HARMED and time.monotonic() < deadline:
            newest = _newest(target)
            for properties in _harmless(newest):
                producer.send(os.urandom(20), properties=properties)
                sent += 1
            # A client that may write there can make an epoch run again, by answering or closing the
            # roll call. It can do nothing worse. Once per epoch: else none would ever be written.
            if newest is not None and newest.state is State.OPEN and newest.key not in harmed:
                producer.send(b"", properties=_harmful(newest, is_answer=not harmed))
                harmed.add((newest.query_id, newest.epoch))
            time.sleep(_POLL_S)
    target.supervisor.kill()  # the next driver reads all of them
    yield Proof(f"{sent} foreign messages, {len(harmed)} roll calls disturbed" if harmed else "")


def _newest(target: FaultTarget) -> LogRecord | None:
    records = target.log_records() or []
    return next((record for record in reversed(records) if pulsar_part(record).mark_uuid), None)


def _harmless(newest: LogRecord | None) -> Iterator[dict[str, str]]:
    # Those of a sink's own messages and near them; with the newest attempt's uuid, too.
    known = str(pulsar_part(newest).mark_uuid if newest is not None else uuid.uuid4())
    for kind in ("receipt", "mark", "sentinel", "prime", "\u0000", ""):
        yield {"eos": kind}
        yield {"eos": kind, "uuid": str(uuid.uuid4())}
    yield {"eos": "receipt", "uuid": known}
    yield {"eos": "answer", "uuid": str(uuid.uuid4()), "run": "", "partition": "-1"}
    yield {}


def _harmful(newest: LogRecord, *, is_answer: bool) -> dict[str, str]:
    call = {"uuid": str(pulsar_part(newest).mark_uuid)}
    if is_answer:
        return {"eos": "answer", "run": str(uuid.uuid4()), "partition": "0", **call}
    return {"eos": "closed", **call}


@contextmanager
def _forged(target: FaultTarget) -> Iterator[Proof]:
    """A PREPARED transaction expires, and a plain message claims that it was committed."""
    asleep = Armed(target, Step.PREPARE, "stop", count=2).await_asleep()
    newest = _newest(target)
    part = EMPTY_PART if newest is None else pulsar_part(newest)
    if asleep is None or part.txn is None:
        yield Proof()
        return
    try:
        forged = {"eos": "receipt", "uuid": str(part.mark_uuid), "txn": str(part.txn)}
        with closing(open_client(target.broker.service_url)) as client:
            client.create_producer(part.receipt_topic).send(b"{}", properties=forged)
        expired = is_over(target, part.txn)
        yield Proof(f"a receipt of {part.txn}, which expired" if expired else "")
    finally:
        asleep.resume()


@contextmanager
def _consumed(target: FaultTarget) -> Iterator[Proof]:
    """A consumer is attached while a driver claims the sink, and afterwards."""
    topic = target.receipt_topic()
    if not topic:
        yield Proof()
        return
    with closing(open_client(target.broker.service_url)) as client:
        consumer = _attached(client, topic)
        try:
            driver = target.supervisor.kill()
            claim = target.await_claim(target.supervisor.await_driver(driver.number + 1))
            yield Proof(claim and f"a consumer of {SUBSCRIPTION}, and a driver {claim}")
        finally:
            consumer.close()


def _attached(client: pulsar.Client, topic: str) -> Any:
    deadline = time.monotonic() + WITHIN_S
    while True:
        try:
            return client.subscribe(topic, SUBSCRIPTION)
        except pulsar.PulsarException:  # the driver is acknowledging
            if time.monotonic() > deadline:
                raise
            time.sleep(_POLL_S)


@contextmanager
def _deleted(target: FaultTarget) -> Iterator[Proof]:
    # While a driver runs, which may notice nothing. The next one may refuse the cluster, and is
    # then started with the setting that its error names.
    topic, log = target.receipt_topic(), target.driver_log()
    if not topic:
        yield Proof()
        return
    delete(target, topic)
    before = target.committed()
    deadline = time.monotonic() + WITHIN_S
    refused = ""
    while target.committed() == before and time.monotonic() < deadline:
        refused = refused or log.line_with("NewCluster")
        if refused:
            target.supervisor.change_job(on_new_cluster="continue")
        time.sleep(_POLL_S)
    if target.committed() == before:
        raise TimeoutError(f"{topic} was deleted, and no epoch was committed afterwards")
    yield Proof(f"{topic} was deleted; {refused[:80] or 'the driver continued'}")


def _fault(name: str, text: str, act: Act, *, is_deletion: bool = False) -> Fault:
    return Fault(name, "client", text, act, leaves_unknown=is_deletion, needs_own=is_deletion)


FAULTS: Final = (
    _fault(
        "foreign-messages",
        "another client sends receipts, answers, closings and rubbish to the receipt topic",
        _foreign,
    ),
    _fault(
        "forged-receipt",
        "a plain message claims that an expired transaction was committed",
        _forged,
    ),
    _fault(
        "receipts-consumed",
        "another client's consumer is attached to the receipt topic's subscription",
        _consumed,
    ),
    _fault(
        "receipts-deleted-live",
        "the receipt topic is deleted while a driver runs; a driver that refuses is told to "
        "continue",
        _deleted,
        is_deletion=True,
    ),
)
