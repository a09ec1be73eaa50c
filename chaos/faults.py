"""The faults by name: each is injected when its block begins, and healed when it ends.

A block yields a ``Proof``: what was really hit. A fault that hit nothing has not happened.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final, Literal

import psutil

from chaos.processes import kill_all, stopped
from chaos.proxy import Fault as ProxyFault
from chaos.proxy import Hold, Judgement, Towards, Verdict
from chaos.target import Target
from eos.wire import commands
from eos.wire.messages import Message

Part = Literal["driver", "executor", "network", "broker", "rival"]
_ALWAYS: Final = 1 << 30
_SLOW_S: Final = 0.02
_FENCED_WITHIN_S: Final = 15.0


@dataclass
class Proof:
    """Whether a fault happened, and to what; ``hit`` is "" as long as it has not.

    ``fired`` is set when it first acts; None: it has acted when its block begins.
    """

    hit: str = ""
    fired: threading.Event | None = None


Act = Callable[[Target], AbstractContextManager[Proof]]


@dataclass(frozen=True)
class Fault:
    """One named fault. ``part``: what it befalls."""

    name: str
    part: Part
    text: str
    act: Act


FAULTS: Final[dict[str, Fault]] = {}


def _fault(
    name: str, part: Part, text: str
) -> Callable[[Callable[[Target], Iterator[Proof]]], Act]:
    def register(function: Callable[[Target], Iterator[Proof]]) -> Act:
        act = contextlib.contextmanager(function)
        FAULTS[name] = Fault(name, part, text, act)
        return act

    return register


def _pids(processes: list[psutil.Process]) -> str:
    return ", ".join(f"pid {process.pid}" for process in processes)


@_fault("driver-kill", "driver", "SIGKILL of the driver's Python, its JVM and its executors")
def _driver_kill(target: Target) -> Iterator[Proof]:
    life = target.supervisor.kill()
    yield Proof(f"pid {life.pid}, exit code {life.exit_code}")


@_fault("driver-stop", "driver", "SIGSTOP of the driver, then SIGCONT")
def _driver_stop(target: Target) -> Iterator[Proof]:
    processes = target.supervisor.current.driver_processes()
    with stopped(processes):
        yield Proof(_pids(processes))


@_fault("hand-over", "rival", "SIGSTOP of the driver, a second one takes over, then SIGCONT")
def _hand_over(target: Target) -> Iterator[Proof]:
    processes = target.supervisor.current.driver_processes()
    with target.supervisor.rival() as older:
        with stopped(processes):
            claim = target.await_claim()
            yield Proof(
                claim and f"a successor of life {older.number} ({_pids(processes)}), {claim}"
            )
        older.await_end(_FENCED_WITHIN_S)


@_fault("second-driver", "rival", "a second driver of the same job, at the same time")
def _second_driver(target: Target) -> Iterator[Proof]:
    with target.supervisor.rival() as older:
        claim = target.await_claim()
        yield Proof(claim and f"life {older.number + 1} beside life {older.number}, {claim}")


@_fault("cli-resolve", "rival", "eos-recovery resolve --apply takes the claim of a live driver")
def _cli_resolve(target: Target) -> Iterator[Proof]:
    ended = target.recovery("resolve", "--apply", "--yes")
    yield Proof(f"exit code {ended.returncode}")


@_fault("executor-kill", "executor", "SIGKILL of an executor")
def _executor_kill(target: Target) -> Iterator[Proof]:
    victims = target.await_processes("executors")[:1]
    kill_all(victims)
    yield Proof(_pids(victims))


@_fault("executor-stop", "executor", "SIGSTOP of an executor, then SIGCONT")
def _executor_stop(target: Target) -> Iterator[Proof]:
    victims = target.await_processes("executors")[:1]
    with stopped(victims):
        yield Proof(_pids(victims))


@_fault("worker-kill", "executor", "SIGKILL of all Python workers: their tasks run again")
def _worker_kill(target: Target) -> Iterator[Proof]:
    victims = target.await_processes("workers")
    kill_all(victims)
    yield Proof(_pids(victims))


@_fault("worker-stop", "executor", "SIGSTOP of all Python workers, then SIGCONT")
def _worker_stop(target: Target) -> Iterator[Proof]:
    victims = target.await_processes("workers")
    with stopped(victims):
        yield Proof(_pids(victims))


def _proxy_fault(
    name: str,
    text: str,
    kind: type[Message],
    judgement: Judgement,
    *,
    times: int = 1,
    towards: Towards | None = None,
) -> None:
    @_fault(name, "network", text)
    def _(target: Target) -> Iterator[Proof]:
        with target.proxy.fault(kind, judgement, times=times, towards=towards) as fault:
            proof = Proof(fired=fault.fired)
            yield proof
            proof.hit = _caught(fault)


def _caught(fault: ProxyFault) -> str:
    return f"{fault.count} x {fault.kind.__name__}" if fault.count else ""


_proxy_fault(
    "lost-end-reply", "the answer to END_TXN is lost", commands.EndTxnResponse, Verdict.DROP
)
_proxy_fault("lost-receipt", "the receipt of a SEND is lost", commands.SendReceipt, Verdict.DROP)
_proxy_fault("lost-send", "a SEND is lost", commands.Send, Verdict.DROP)
_proxy_fault(
    "cut-at-end", "END_TXN arrives, its connection is cut", commands.EndTxn, Verdict.CUT_AFTER
)
_proxy_fault("cut-in-frame", "a SEND is cut in its middle", commands.Send, Verdict.CUT_WITHIN)
_proxy_fault(
    "deaf",
    "nothing comes back from the broker",
    Message,
    Verdict.DROP,
    times=_ALWAYS,
    towards="client",
)
_proxy_fault(
    "mute", "nothing gets to the broker", Message, Verdict.DROP, times=_ALWAYS, towards="broker"
)
_proxy_fault("slow-link", "20 ms more for each frame", Message, Hold(_SLOW_S), times=_ALWAYS)


@_fault("cut-all", "network", "all connections are cut at once")
def _cut_all(target: Target) -> Iterator[Proof]:
    count = target.proxy.cut_all()
    yield Proof(f"{count} connections" if count else "")


@_fault("broker-kill", "broker", "SIGKILL of the broker, then a start on the same data")
def _broker_kill(target: Target) -> Iterator[Proof]:
    pid = target.broker.pid
    target.broker.kill()
    try:
        yield Proof(f"pid {pid}")
    finally:
        target.heal_broker()


@_fault("unload", "broker", "all partitions of the topic are unloaded")
def _unload(target: Target) -> Iterator[Proof]:
    for topic in target.topics:
        target.admin("PUT", f"/v2/{topic.replace('://', '/')}/unload")
    yield Proof(f"{len(target.topics)} partitions")


@_fault("coordinator-move", "broker", "the transaction coordinator is unloaded, and loads again")
def _coordinator_move(target: Target) -> Iterator[Proof]:
    name = "persistent/pulsar/system/transaction_coordinator_assign-partition-0"
    target.admin("PUT", f"/v2/{name}/unload")
    yield Proof(name)
