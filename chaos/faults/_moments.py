"""Faults at an exact moment: as a command passes the proxy, or after a step of eos."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import psutil

from eos.chaos.cluster.target import FaultTarget
from eos.chaos.faults._fault import (
    Armed,
    ArmedAction,
    Fault,
    HitPart,
    Proof,
    acts,
    at_first,
    kill_broker,
    kill_coordinator,
    kill_executor,
    kill_workers,
    pids,
    resolve,
)
from eos.chaos.faults._processes import FENCED_WITHIN_S
from eos.cli.reports import Exit
from eos.steps import AnyStep, EndingStep, LogStep, Step, TaskStep
from eos.wire import commands
from eos.wire.messages import WireMessage


def _at(
    name: str, part: HitPart, text: str, kind: type[WireMessage], kill: Callable[[FaultTarget], str]
) -> Fault:
    """Call ``kill`` when a command of ``kind`` passes, then pass it on."""

    @contextmanager
    def act(target: FaultTarget) -> Iterator[Proof]:
        def counts(command: Any) -> bool:
            # With eos, only commands of an epoch's transaction: not its marks. Other sinks, which
            # have no log, may write without one.
            return getattr(command, "txnid_most", 0) is not None or not target.has_log

        with at_first(target, kind, lambda _: kill(target), counts=counts) as proof:
            yield proof

    return Fault(name, part, text, act)


@contextmanager
def _zombies(target: FaultTarget) -> Iterator[Proof]:
    """Workers are stopped while writing until their transaction is aborted, then they continue."""
    asleep: list[psutil.Process] = []

    def suspend(_: commands.Send) -> str:
        asleep.extend(target.supervisor.current.workers())
        for process in asleep:
            process.suspend()
        return ""  # nothing is proved before their transaction is aborted

    def counts(command: commands.Send) -> bool:
        return command.txnid_most is not None

    try:
        with at_first(target, commands.Send, suspend, counts=counts) as proof:
            yield proof
        if asleep and resolve(target) == Exit.CLEAN:
            proof.hit = f"{pids(asleep)} were stopped while eos recovery aborted their transaction"
    finally:
        for process in asleep:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()


# Each step of recovery, and the step after which a driver dies to make it necessary.
_DIED_AFTER: Final[dict[AnyStep, Step]] = {
    EndingStep.MARK: Step.PREPARE,
    EndingStep.ABORTING: Step.WRITE,
    Step.END: Step.PREPARE,
    EndingStep.WITNESS: Step.END,
    EndingStep.PART: Step.PREPARE,
    EndingStep.OUTCOME: Step.PREPARE,
}


@acts
def _dies(
    target: FaultTarget,
    place: AnyStep,
    action: ArmedAction,
    count: int,
    after_death_at: AnyStep | None = None,
) -> Iterator[Proof]:
    armed = Armed(target, place, action, count=count, after_death_at=after_death_at)
    pid = armed.await_fired()
    # After an error it may try again and live: both is right, and the proof says which.
    ended = pid and armed.driver.await_end(FENCED_WITHIN_S)
    how = f"exit code {armed.driver.exit_code}" if ended else "which survived"
    yield Proof(f"{action} in pid {pid} of driver {armed.driver.number}, {how}" if pid else "")


@acts
def _overtaken(
    target: FaultTarget, place: AnyStep, count: int, after_death_at: AnyStep | None = None
) -> Iterator[Proof]:
    asleep = Armed(target, place, "stop", count=count, after_death_at=after_death_at).await_asleep()
    if asleep is None:
        yield Proof()
        return
    with target.supervisor.rival() as (older, younger):
        claim = target.await_claim(younger)
        yield Proof(claim and f"driver {older.number} was stopped, a successor {claim}")
        # Within the block, so that it notices its successor, and is not just killed.
        asleep.resume()
        older.await_end(FENCED_WITHIN_S)


@acts
def _task_fails(target: FaultTarget, place: AnyStep, action: ArmedAction) -> Iterator[Proof]:
    pid = Armed(target, place, action).await_fired()
    yield Proof(f"{action} in pid {pid}" if pid else "")


@acts
def _task_is_stopped(target: FaultTarget, place: AnyStep) -> Iterator[Proof]:
    asleep = Armed(target, place, "stop").await_asleep()
    if asleep is None:
        yield Proof()
        return
    try:
        is_ended = resolve(target) == Exit.CLEAN
        how = f"pid {asleep.pid} was stopped while eos recovery ended its transaction"
        yield Proof(how if is_ended else "")
    finally:
        asleep.resume()


def _of_driver(step: Step) -> Iterator[Fault]:
    name, where = step.label, f"after step {step.number}"
    # A driver claims once; the other steps come again in the middle of the stream.
    count = 1 if step is Step.CLAIM else 2
    yield Fault(f"kill-at-{name}", "driver", f"the driver dies {where}", _dies(step, "kill", count))
    text = f"the driver is stopped {where} until another one has taken over"
    yield Fault(f"overtaken-at-{name}", "rival", text, _overtaken(step, count))
    text = f"an error in the driver {where}"
    yield Fault(f"error-at-{name}", "driver", text, _dies(step, "error", count))


def _of_recovery(place: AnyStep, after_death_at: Step) -> Iterator[Fault]:
    name = f"at-{place.name.lower()}"
    after = f"in a recovery ({place.text}) from a death after step {after_death_at.number}"
    args = (1, after_death_at)
    text = f"the driver dies {after}"
    yield Fault(f"recovery-kill-{name}", "driver", text, _dies(place, "kill", *args))
    text = f"the driver is stopped until another one has taken over, {after}"
    yield Fault(f"recovery-overtaken-{name}", "rival", text, _overtaken(place, *args))
    text = f"an error {after}"
    yield Fault(f"recovery-error-{name}", "driver", text, _dies(place, "error", *args))


def _of_task(step: TaskStep) -> Iterator[Fault]:
    name, after = f"at-{step.name.lower()}", f"in a task ({step.text})"
    text = f"a worker dies {after}"
    yield Fault(f"task-kill-{name}", "executor", text, _task_fails(step, "kill"))
    text = f"a worker is stopped {after} until its transaction is ended"
    yield Fault(f"task-asleep-{name}", "executor", text, _task_is_stopped(step))
    text = f"an error {after}"
    yield Fault(f"task-error-{name}", "executor", text, _task_fails(step, "error"))


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
    *(fault for step in Step for fault in _of_driver(step)),
    *(
        fault
        for place, after_death_at in _DIED_AFTER.items()
        for fault in _of_recovery(place, after_death_at)
    ),
    *(fault for step in TaskStep for fault in _of_task(step)),
    Fault(
        "kill-between-commits",
        "driver",
        "the driver dies between the commits of an epoch's first output and the next one",
        _dies(EndingStep.PART, "kill", 3),
    ),
    Fault(
        "lost-append",
        "log",
        "a record is in the log, but its driver gets an error",
        _dies(LogStep.APPEND, "error", 6),
    ),
)
