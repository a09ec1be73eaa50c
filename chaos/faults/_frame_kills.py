"""Kills at the moment when a command, or its answer, passes the proxy."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import psutil

from eos.chaos.cluster.proxy import FrameAction
from eos.chaos.cluster.target import FaultTarget
from eos.chaos.faults._fault import (
    Fault,
    HitPart,
    Proof,
    kill_broker,
    kill_coordinator,
    kill_executor,
    kill_workers,
    pids,
)
from eos.wire import commands
from eos.wire.messages import WireMessage


def _at(
    name: str, part: HitPart, text: str, kind: type[WireMessage], kill: Callable[[FaultTarget], str]
) -> Fault:
    """Call ``kill`` when a command of ``kind`` passes, then pass it on."""

    @contextmanager
    def act(target: FaultTarget) -> Iterator[Proof]:
        proof = Proof(fired=threading.Event())
        once = threading.Lock()

        def rule(command: Any) -> FrameAction:
            # With eos, only commands of an epoch's transaction: not its marks.
            counts = getattr(command, "txnid_most", 0) is not None or not target.has_log
            if counts and once.acquire(blocking=False):
                proof.hit = kill(target)
                assert proof.fired is not None
                proof.fired.set()
            return FrameAction.PASS

        try:
            with target.proxy.fault(kind, rule):
                yield proof
        finally:
            target.heal_broker()

    return Fault(name, part, text, act)


@contextmanager
def _zombies(target: FaultTarget) -> Iterator[Proof]:
    """Workers are stopped while writing until their transaction is aborted, then they continue."""
    proof = Proof(fired=threading.Event())
    asleep: list[psutil.Process] = []
    once = threading.Lock()

    def rule(command: commands.Send) -> FrameAction:
        if command.txnid_most is not None and once.acquire(blocking=False):
            asleep.extend(target.supervisor.current.workers())
            for process in asleep:
                process.suspend()
            assert proof.fired is not None
            proof.fired.set()
        return FrameAction.PASS

    try:
        with target.proxy.fault(commands.Send, rule):
            yield proof
        if asleep:
            ended = target.recovery("resolve", "--apply", "--yes")
            if ended.returncode == 0:
                proof.hit = (
                    f"{pids(asleep)} were stopped while eos recovery aborted their transaction"
                )
    finally:
        for process in asleep:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()


FAULTS: Final = (
    _at(
        "executor-kill-at-send",
        "executor",
        "SIGKILL of an executor at the first SEND",
        commands.Send,
        kill_executor,
    ),
    _at(
        "executor-kill-at-close",
        "executor",
        "SIGKILL of an executor when a task has its acknowledgements, before its summary",
        commands.CloseProducer,
        kill_executor,
    ),
    Fault(
        "zombie-at-send",
        "executor",
        "SIGSTOP of all Python workers at the first SEND, until their transaction is aborted",
        _zombies,
    ),
    _at(
        "executor-kill-at-end",
        "executor",
        "SIGKILL of an executor at END_TXN",
        commands.EndTxn,
        kill_executor,
    ),
    _at(
        "worker-kill-at-send",
        "executor",
        "SIGKILL of all Python workers at the first SEND",
        commands.Send,
        kill_workers,
    ),
    _at(
        "broker-kill-at-send",
        "broker",
        "SIGKILL of the broker at the first SEND",
        commands.Send,
        kill_broker,
    ),
    _at(
        "broker-kill-at-end",
        "broker",
        "SIGKILL of the broker at END_TXN",
        commands.EndTxn,
        kill_coordinator,
    ),
    _at(
        "broker-kill-at-end-reply",
        "broker",
        "SIGKILL of the broker after it ended a transaction, before its answer",
        commands.EndTxnResponse,
        kill_coordinator,
    ),
)
