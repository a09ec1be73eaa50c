"""Faults of the job's input: its topic, also in a bucket or an archive, its readers, bad rows."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import Final

import psutil

from eos.chaos._records import release_row
from eos.chaos.cluster.object_store import ObjectAnswer
from eos.chaos.cluster.processes import stopped
from eos.chaos.cluster.proxy import FrameAction
from eos.chaos.cluster.target import FaultTarget, path_of
from eos.chaos.faults._fault import (
    WITHIN_S,
    Act,
    Fault,
    Proof,
    acts,
    ask,
    at_first,
    kill_broker,
    kill_executor,
    kill_workers,
)
from eos.chaos.faults.conditions import ARCHIVING, FROM_TIERED
from eos.chaos.job import INPUT_SUBSCRIPTION
from eos.client import PulsarClient
from eos.errors import EosError
from eos.ids import TopicName
from eos.steps import ArchiveStep
from eos.testing import offload
from eos.wire import commands
from eos.wire.offloaded import LedgerIndex

_TOO_LARGE: Final = 6 << 20  # a broker accepts 5 MiB by default
_ABORTED_ENTRIES: Final = 3000
_TTL_S: Final = 30.0
_UNCOMMITTED: Final = b"of a transaction that is never committed"
_INDEX: Final = "-index"
_SLOW_S: Final = 5.0
_TRIMMED_WITHIN_S: Final = 60.0


def partitions_of(target: FaultTarget) -> list[str]:
    """The partitions of the input topic."""
    topic = TopicName.parse(target.job.input_topic)
    found = target.broker.admin("GET", f"{path_of(str(topic))}/partitions")
    return [str(one) for one in topic.partitions(int(found["partitions"]))]


def _ledgers(target: FaultTarget, topics: list[str]) -> set[int]:
    """The ledgers of these topics."""
    stats = [target.broker.admin("GET", f"{path_of(one)}/internalStats") for one in topics]
    return {ledger["ledgerId"] for one in stats for ledger in one["ledgers"]}


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
    topics = partitions_of(target)
    before = _ledgers(target, topics)
    for topic in topics:
        # Unloading closes the ledger: the one that is being written is never trimmed.
        target.broker.admin("PUT", f"{path_of(topic)}/unload")

    def trim() -> str:
        for topic in topics:
            target.broker.admin("POST", f"{path_of(topic)}/trim")
        gone = before - _ledgers(target, topics)
        return f"{len(gone)} ledgers were deleted" if gone else ""

    # Until the query has acknowledged one; the broker deletes it in the background.
    yield Proof(ask(trim, _TRIMMED_WITHIN_S, poll_s=1.0))


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


# --- the topic's past -------------------------------------------------------------------------

Change = Callable[[FaultTarget, str, ObjectAnswer], ObjectAnswer]


def _answers(change: Change, *, has_data: bool = True, has_index: bool = False) -> Act:
    """Change the answers that readers get for objects of these kinds."""

    @contextmanager
    def act(target: FaultTarget) -> Iterator[Proof]:
        fired = threading.Event()
        proof = Proof(fired=fired)

        def rule(name: str, answer: ObjectAnswer) -> ObjectAnswer:
            is_meant = has_index if name.endswith(_INDEX) else has_data
            changed = change(target, name, answer) if is_meant and answer.data else answer
            if changed is not answer:
                proof.hit = proof.hit or name
                fired.set()
            return changed

        assert target.store is not None
        with target.store.fault(rule):
            yield proof

    return act


def _truncated(_: FaultTarget, __: str, answer: ObjectAnswer) -> ObjectAnswer:
    assert answer.data is not None
    return replace(answer, data=answer.data[: len(answer.data) // 2])


def _exchanged(target: FaultTarget, _: str, answer: ObjectAnswer) -> ObjectAnswer:
    """The index of another partition."""
    assert target.store is not None
    assert answer.data is not None
    mine = LedgerIndex.parse(answer.data).owner
    for other in target.store.names():
        data = target.store.read(other) if other.endswith(_INDEX) else None
        if data is not None and LedgerIndex.parse(data).owner != mine:
            return replace(answer, data=data)
    return answer


def _workers_killed() -> Change:
    once = threading.Lock()

    def change(target: FaultTarget, _: str, answer: ObjectAnswer) -> ObjectAnswer:
        if not once.acquire(blocking=False):
            return answer
        if kill_workers(target):
            return replace(answer, is_cut=True)
        once.release()  # another process read it: there is no worker yet
        return answer

    return change


@contextmanager
def _killed_at_object(target: FaultTarget) -> Iterator[Proof]:
    with _answers(_workers_killed())(target) as proof:
        yield proof


@contextmanager
def _offloaded_at_read(target: FaultTarget) -> Iterator[Proof]:
    store = target.store
    assert store is not None

    def hit(_: FaultTarget) -> str:
        for topic in partitions_of(target):
            offload(target.broker, topic, timeout_s=WITHIN_S)
        new = set(store.names()) - before
        return f"{len(new)} objects" if new else ""

    before = set(store.names())
    store.comes_first = False
    try:
        with while_reading(hit)(target) as proof:
            yield proof
    finally:
        store.comes_first = True


@contextmanager
def _archiver_killed(target: FaultTarget) -> Iterator[Proof]:
    assert target.archiver is not None
    pid = target.archiver.kill()
    yield Proof(f"pid {pid}" if pid else "")


@acts
def _archiver_killed_at(target: FaultTarget, step: ArchiveStep) -> Iterator[Proof]:
    assert target.archiver is not None
    pid = target.archiver.kill_at(step, timeout_s=WITHIN_S)
    yield Proof(f"pid {pid}" if pid else "")


def _stored(name: str, text: str, act: Act) -> Fault:
    return Fault(name, "storage", text, act, needs=FROM_TIERED, needs_own=True)


def _archived(name: str, text: str, act: Act) -> Fault:
    return Fault(name, "archive", text, act, needs=ARCHIVING, needs_own=True)


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
    _stored(
        "object-deleted",
        "objects of offloaded ledgers are missing",
        _answers(lambda _, __, one: replace(one, data=None), has_index=True),
    ),
    _stored(
        "object-slow",
        "each answer of tiered storage takes five seconds",
        _answers(lambda _, __, one: replace(one, delay_s=_SLOW_S), has_index=True),
    ),
    _stored(
        "object-busy",
        "tiered storage answers 503",
        _answers(lambda _, __, one: replace(one, is_busy=True), has_index=True),
    ),
    _stored(
        "object-cut",
        "connections to tiered storage are cut in the middle of an object",
        _answers(lambda _, __, one: replace(one, is_cut=True)),
    ),
    _stored("object-truncated", "objects have only their first half", _answers(_truncated)),
    _stored(
        "index-exchanged",
        "the index of an offloaded ledger is that of another partition",
        _answers(_exchanged, has_data=False, has_index=True),
    ),
    _stored(
        "worker-kill-at-object",
        "SIGKILL of all Python workers at the first object that they read",
        _killed_at_object,
    ),
    _stored(
        "offloaded-at-read",
        "ledgers are offloaded at the first entry that the broker delivers of them",
        _offloaded_at_read,
    ),
    _archived("archiver-kill", "SIGKILL of the archiver", _archiver_killed),
    *(
        _archived(
            f"archiver-kill-at-{step.name.lower()}",
            f"SIGKILL of the archiver after: {step.text}",
            _archiver_killed_at(step),
        )
        for step in ArchiveStep
    ),
)
