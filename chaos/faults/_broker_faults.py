"""Faults of the broker and of the connections to it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from eos.chaos._records import text_of
from eos.chaos.cluster.proxy import FrameAction, Hold, Judgement, Towards
from eos.chaos.cluster.target import FaultTarget, path_of
from eos.chaos.faults._fault import Armed, Fault, Proof, acts, ask, kill_broker
from eos.client import PulsarClient
from eos.errors import EosError
from eos.ids import TxnId
from eos.steps import Step
from eos.wire import commands
from eos.wire.messages import WireMessage

_ALWAYS: Final = 1 << 30  # more than any run has frames
_SLOW: Final = Hold(0.02)


def _frames(
    name: str,
    text: str,
    kind: type[WireMessage],
    judgement: Judgement,
    *,
    times: int = 1,
    towards: Towards | None = None,
) -> Fault:
    @contextmanager
    def act(target: FaultTarget) -> Iterator[Proof]:
        with target.proxy.fault(kind, judgement, times=times, towards=towards) as fault:
            proof = Proof(fired=fault.fired)
            yield proof
            proof.hit = f"{fault.count} x {kind.__name__}" if fault.count else ""

    return Fault(name, "network", text, act, is_survived=True)


@contextmanager
def _cut_all(target: FaultTarget) -> Iterator[Proof]:
    count = target.proxy.cut_all()
    yield Proof(f"{count} connections" if count else "")


_DROP, _CUT_AFTER, _CUT_WITHIN = FrameAction.DROP, FrameAction.CUT_AFTER, FrameAction.CUT_WITHIN


_EXPIRES_WITHIN_S: Final = 60.0
_SENT_WITHIN_S: Final = 10.0


@contextmanager
def _broker_kill(target: FaultTarget) -> Iterator[Proof]:
    killed = kill_broker(target)
    # Restarted at the end of the block only: a broker must be missed before it is back.
    try:
        yield Proof(killed)
    finally:
        target.heal_broker()


@contextmanager
def _unload(target: FaultTarget) -> Iterator[Proof]:
    for topic in target.topics:
        target.broker.admin("PUT", f"{path_of(topic)}/unload")
    yield Proof(f"{len(target.topics)} partitions")


@contextmanager
def _coordinator_move(target: FaultTarget) -> Iterator[Proof]:
    topic = target.coordinator_topic()
    target.broker.admin("PUT", f"{path_of(topic)}/unload")
    yield Proof(topic)


@acts
def _expires(target: FaultTarget, step: Step) -> Iterator[Proof]:
    asleep = Armed(target, step, "stop", count=2).await_asleep()
    if asleep is None:
        yield Proof()
        return
    try:
        txn = target.newest_txn()
        yield Proof(f"transaction {txn} expired" if txn and is_over(target, txn) else "")
    finally:
        asleep.resume()


def is_over(target: FaultTarget, txn: TxnId) -> bool:
    """Wait for the broker to end ``txn``; return whether it did."""

    def has_ended() -> bool:
        with suppress(EosError):  # no answer proves nothing
            found = target.admin.transaction(txn)
            # A broker forgets transactions that have ended.
            return found is None or found.status not in ("OPEN", "COMMITTING")
        return False

    return ask(has_ended, _EXPIRES_WITHIN_S)


@contextmanager
def _pinned(target: FaultTarget) -> Iterator[Proof]:
    """The late first send of a zombie, after the abort, to a partition without messages."""
    # It is stopped with its transaction open, its write fails, and it is stopped after the abort.
    armed = Armed(target, Step.OPEN, "stop", then="write=error,end=stop")
    asleep = armed.await_asleep()
    # Only where no transaction has ever written does an abort leave no trace that would refuse
    # the late send (docs/facts.md).
    txn, fresh = target.newest_txn(), target.fresh_partition()
    if asleep is None or txn is None or not fresh:
        if asleep is not None:
            asleep.resume()
        yield Proof()
        return
    with PulsarClient(target.broker.service_url) as client:
        zombie = client.join(txn)
        zombie.register([fresh])  # while the transaction is open: afterwards it is refused
        producer = client.entry_producer(fresh)
        asleep.resume()
        asleep = armed.await_asleep(Step.END)
        if asleep is None:
            yield Proof()
            return
        try:
            producer.send(text_of("late/0").encode(), txn=zombie).result(timeout=_SENT_WITHIN_S)
        finally:
            asleep.resume()
        yield Proof(f"{fresh.rpartition('/')[2]} got a send of {txn} after its abort")


FAULTS: Final = (
    _frames("lost-end", "an END_TXN is lost", commands.EndTxn, _DROP),
    _frames("lost-end-reply", "the answer to END_TXN is lost", commands.EndTxnResponse, _DROP),
    _frames("lost-begin-reply", "the answer to NEW_TXN is lost", commands.NewTxnResponse, _DROP),
    _frames("lost-send", "a SEND is lost", commands.Send, _DROP),
    _frames("lost-receipt", "the acknowledgement of a SEND is lost", commands.SendReceipt, _DROP),
    _frames(
        "cut-at-end", "END_TXN arrives, then its connection is cut", commands.EndTxn, _CUT_AFTER
    ),
    _frames(
        "cut-in-frame", "a connection is cut in the middle of a SEND", commands.Send, _CUT_WITHIN
    ),
    _frames(
        "deaf",
        "nothing arrives from the broker",
        WireMessage,
        _DROP,
        times=_ALWAYS,
        towards="client",
    ),
    _frames(
        "mute", "nothing arrives at the broker", WireMessage, _DROP, times=_ALWAYS, towards="broker"
    ),
    _frames("slow-link", "each frame is delayed by 20 ms", WireMessage, _SLOW, times=_ALWAYS),
    Fault("cut-all", "network", "all connections are cut at once", _cut_all, True),
    Fault("broker-kill", "broker", "SIGKILL of the broker, then a restart", _broker_kill, True),
    Fault("unload", "broker", "all partitions of the topic are unloaded", _unload, True),
    Fault("coordinator-move", "broker", "the coordinator is unloaded", _coordinator_move, True),
    Fault(
        "expired-before-prepared",
        "broker",
        "a transaction expires while its driver is stopped after step 5",
        _expires(Step.WRITE),
    ),
    Fault(
        "expired-after-prepared",
        "broker",
        "a transaction expires while its driver is stopped after step 8",
        _expires(Step.PREPARE),
    ),
    Fault(
        "pinned",
        "broker",
        "a late first send of an aborted transaction pins a partition",
        _pinned,
        needs_keyless=True,
    ),
)
