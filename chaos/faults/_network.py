"""Faults of the connections to the broker, injected by the proxy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from eos.chaos.cluster.proxy import FrameAction, Hold, Judgement, Towards
from eos.chaos.cluster.target import FaultTarget
from eos.chaos.faults._fault import Fault, Proof
from eos.wire import commands
from eos.wire.messages import WireMessage

_ALWAYS: Final = 1 << 30
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
)
