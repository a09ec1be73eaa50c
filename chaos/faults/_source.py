"""Faults of the job's input: the topic, its readers, and rows that can't be written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Final

import psutil

from eos.chaos._records import release_row
from eos.chaos.cluster.processes import stopped
from eos.chaos.cluster.proxy import FrameAction
from eos.chaos.cluster.target import FaultTarget, path_of
from eos.chaos.faults._fault import (
    Act,
    Fault,
    Proof,
    acts,
    at_first,
    kill_broker,
    kill_executor,
    kill_workers,
)
from eos.chaos.job import INPUT_SUBSCRIPTION
from eos.client import PulsarClient
from eos.errors import EosError
from eos.ids import TopicName
from eos.wire import commands

_TOO_LARGE: Final = 6 << 20  # a broker accepts 5 MiB by default
_ABORTED_ENTRIES: Final = 3000
_TTL_S: Final = 30.0
_UNCOMMITTED: Final = b"of a transaction that is never committed"


def partitions_of(target: FaultTarget) -> list[str]:
    """The partitions of the input topic."""
    topic = TopicName.parse(target.job.input_topic)
    found = target.broker.admin("GET", f"{path_of(str(topic))}/partitions")
    return [str(one) for one in topic.partitions(int(found["partitions"]))]


def _unload(target: FaultTarget) -> str:
    for topic in partitions_of(target):
        target.broker.admin("PUT", f"{path_of(topic)}/unload")
    return target.job.input_topic


def while_reading(hit: Callable[[FaultTarget], str], action: FrameAction = FrameAction.PASS) -> Act:
    """Call ``hit`` when an entry passes on its way to a reader, then apply ``action`` to it."""

    def is_input(entry: commands.Deliver) -> bool:
        return entry.message_id.partition >= 0  # the receipt topic has no partitions

    return lambda target: at_first(
        target, commands.Deliver, lambda _: hit(target), counts=is_input, action=action
    )


@contextmanager
def _asleep(target: FaultTarget) -> Iterator[Proof]:
    awake = ExitStack()

    def freeze(target: FaultTarget) -> str:
        # Asked before the broker sleeps: it answers no lookup then.
        pid = target.broker_of(partitions_of(target)[0]).pid
        if pid is None:  # in a container
            return ""
        awake.enter_context(stopped([psutil.Process(pid)]))
        return f"pid {pid}"

    with while_reading(freeze)(target) as proof, awake:
        yield proof


@contextmanager
def _trimmed(target: FaultTarget) -> Iterator[Proof]:
    # Nothing may be missing afterwards: the query's subscription keeps unread messages.
    for topic in partitions_of(target):
        # Unloading closes the ledger: the one that is being written is never trimmed.
        target.broker.admin("PUT", f"{path_of(topic)}/unload")
        target.broker.admin("POST", f"{path_of(topic)}/trim")
    yield Proof(target.job.input_topic)


@contextmanager
def _partition_added(target: FaultTarget) -> Iterator[Proof]:
    count = len(partitions_of(target)) + 1
    target.broker.admin("POST", f"{path_of(target.job.input_topic)}/partitions", count)
    yield Proof(f"{count} partitions")


@contextmanager
def _unsubscribed(target: FaultTarget) -> Iterator[Proof]:
    removed = 0
    for topic in partitions_of(target):
        with suppress(EosError):  # of a partition that was not read yet
            path = f"{path_of(topic)}/subscription/{INPUT_SUBSCRIPTION}?force=true"
            target.broker.admin("DELETE", path)
            removed += 1
    yield Proof(f"{removed} subscriptions" if removed else "")


@contextmanager
def _open_transaction(target: FaultTarget) -> Iterator[Proof]:
    # It is never ended here: readers wait until it expires, and the broker aborts it.
    with PulsarClient(target.broker.service_url) as client:
        txn = client.transaction(timeout_s=_TTL_S)
        for producer in client.entry_producers(partitions_of(target), txn=txn):
            producer.send(_UNCOMMITTED, txn=txn).result(timeout=_TTL_S)
        yield Proof(f"transaction {txn.id}")


@contextmanager
def _large_abort(target: FaultTarget) -> Iterator[Proof]:
    with PulsarClient(target.broker.service_url) as client:
        txn = client.transaction(timeout_s=_TTL_S)
        (producer, *_) = client.entry_producers(partitions_of(target), txn=txn)
        for sent in [producer.send(_UNCOMMITTED, txn=txn) for _ in range(_ABORTED_ENTRIES)]:
            sent.result(timeout=_TTL_S)
        txn.abort()
        yield Proof(f"{_ABORTED_ENTRIES} entries")


@acts
def _row(target: FaultTarget, value: str | None) -> Iterator[Proof]:
    release_row(target.job, value)
    yield Proof(f"a row of {'no value' if value is None else f'{len(value)} characters'}")


def _fault(name: str, text: str, act: Act, *, is_survived: bool = False) -> Fault:
    return Fault(name, "source", text, act, is_survived, needs_input_topic=True, needs_own=True)


FAULTS: Final = (
    Fault("null-value", "input", "a row without a value", _row(None), ends_with="InputError"),
    Fault(
        "large-value",
        "input",
        "a row that is larger than the broker accepts",
        _row("x" * _TOO_LARGE),
        ends_with="MessageTooLarge",
    ),
    _fault(
        "input-unloaded",
        "the input topic is unloaded while it is read",
        while_reading(_unload),
        is_survived=True,
    ),
    _fault(
        "input-cut",
        "a connection is cut in the middle of an entry for a reader",
        while_reading(lambda _: "an entry", FrameAction.CUT_WITHIN),
        is_survived=True,
    ),
    _fault(
        "worker-kill-at-read",
        "SIGKILL of all Python workers at the first entry that they receive",
        while_reading(kill_workers),
    ),
    _fault(
        "executor-kill-at-read",
        "SIGKILL of an executor at the first entry that it receives",
        while_reading(kill_executor),
    ),
    _fault(
        "broker-kill-at-read",
        "SIGKILL of the broker at the first entry that it delivers",
        while_reading(kill_broker),
    ),
    _fault(
        "broker-sleep-at-read",
        "SIGSTOP of the broker at the first entry that it delivers, then SIGCONT",
        _asleep,
        is_survived=True,
    ),
    _fault("input-trimmed", "the input topic is trimmed", _trimmed),
    _fault("input-partition-added", "a partition is added to the input topic", _partition_added),
    _fault("input-unsubscribed", "the query's subscription is removed", _unsubscribed),
    _fault(
        "input-open-transaction",
        "a transaction in the input topic stays open until it expires",
        _open_transaction,
    ),
    _fault(
        "input-large-abort",
        "a transaction of 3,000 entries in the input topic is aborted",
        _large_abort,
    ),
)
