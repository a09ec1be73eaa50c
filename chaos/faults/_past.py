"""Faults of a topic's past: of its ledgers in tiered storage, and of its archive."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from eos.chaos.cluster.object_store import ObjectAnswer
from eos.chaos.cluster.target import FaultTarget
from eos.chaos.faults._fault import WITHIN_S, Act, Fault, Proof, acts, kill_workers
from eos.chaos.faults._source import partitions_of, while_reading
from eos.chaos.faults.conditions import ARCHIVING, FROM_TIERED
from eos.steps import ArchiveStep
from eos.testing import offload
from eos.wire.offloaded import LedgerIndex

_INDEX: Final = "-index"
_SLOW_S: Final = 5.0

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
        return replace(answer, is_cut=bool(kill_workers(target)))

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
        return f"{len(store.names())} objects"

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
