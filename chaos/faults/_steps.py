"""A failpoint behind each step of the code's own lists: of drivers, of recovery, of Spark tasks.

For workloads that write with eos: the failpoints are in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from eos.chaos.cluster.target import FaultTarget
from eos.chaos.faults._armed import Armed, ArmedAction
from eos.chaos.faults._fault import Act, Fault, Proof
from eos.chaos.faults._rival import FENCED_WITHIN_S
from eos.steps import AnyStep, EndingStep, LogStep, Step, TaskStep

_LEFT_BEHIND: Final[dict[AnyStep, Step]] = {
    EndingStep.MARK: Step.PREPARE,
    EndingStep.ABORTING: Step.WRITE,
    Step.END: Step.PREPARE,
    EndingStep.WITNESS: Step.END,
    EndingStep.PART: Step.PREPARE,
    EndingStep.OUTCOME: Step.PREPARE,
}
"""Each step of recovery, and behind which step a driver dies to leave something for it to do."""


def _dies(place: AnyStep, action: ArmedAction, count: int, behind: AnyStep | None = None) -> Act:
    @contextmanager
    def act(target: FaultTarget) -> Iterator[Proof]:
        armed = Armed(target, place, action, count=count, behind=behind)
        pid = armed.await_fired()
        ended = pid and armed.life.await_end(FENCED_WITHIN_S)
        how = f"exit code {armed.life.exit_code}" if ended else "which got over it"
        yield Proof(f"{action} in pid {pid} of life {armed.life.number}, {how}" if pid else "")

    return act


def _overtaken(place: AnyStep, count: int, behind: AnyStep | None = None) -> Act:
    @contextmanager
    def act(target: FaultTarget) -> Iterator[Proof]:
        asleep = Armed(target, place, "stop", count=count, behind=behind).await_asleep()
        if asleep is None:
            yield Proof()
            return
        with target.supervisor.rival() as (older, younger):
            claim = target.await_claim(younger)
            yield Proof(claim and f"life {older.number} slept, a successor {claim}")
            asleep.resume()
            older.await_end(FENCED_WITHIN_S)

    return act


def _task_fails(place: AnyStep, action: ArmedAction) -> Act:
    @contextmanager
    def act(target: FaultTarget) -> Iterator[Proof]:
        pid = Armed(target, place, action).await_fired()
        yield Proof(f"{action} in pid {pid}" if pid else "")

    return act


def _task_oversleeps(place: AnyStep) -> Act:
    @contextmanager
    def act(target: FaultTarget) -> Iterator[Proof]:
        asleep = Armed(target, place, "stop").await_asleep()
        if asleep is None:
            yield Proof()
            return
        try:
            ended = target.recovery("resolve", "--apply", "--yes")
            yield Proof(f"pid {asleep.pid} slept while eos recovery ended with {ended.returncode}")
        finally:
            asleep.resume()

    return act


def _of_driver(step: Step) -> Iterator[Fault]:
    name, where = step.label, f"behind step {step.number}"
    count = 1 if step is Step.CLAIM else 2  # a claim is made once in a life; the rest in mid-stream
    yield Fault(f"kill-at-{name}", "driver", f"the driver dies {where}", _dies(step, "kill", count))
    text = f"the driver sleeps {where} until another one has taken over"
    yield Fault(f"overtaken-at-{name}", "rival", text, _overtaken(step, count))
    text = f"an error {where} of the driver"
    yield Fault(f"error-at-{name}", "driver", text, _dies(step, "error", count))


def _of_recovery(place: AnyStep, behind: Step) -> Iterator[Fault]:
    name = f"at-{place.name.lower()}"
    after = f"of a recovery ({place.text}), after a death behind step {behind.number}"
    args = (1, behind)
    text = f"the driver dies {after}"
    yield Fault(f"recovery-kill-{name}", "driver", text, _dies(place, "kill", *args))
    text = f"the driver is overtaken in its sleep {after}"
    yield Fault(f"recovery-overtaken-{name}", "rival", text, _overtaken(place, *args))
    text = f"an error {after}"
    yield Fault(f"recovery-error-{name}", "driver", text, _dies(place, "error", *args))


def _of_task(step: TaskStep) -> Iterator[Fault]:
    name, after = f"at-{step.name.lower()}", f"in a task ({step.text})"
    text = f"a worker dies {after}"
    yield Fault(f"task-kill-{name}", "executor", text, _task_fails(step, "kill"))
    text = f"a worker sleeps {after} until its transaction was ended"
    yield Fault(f"task-asleep-{name}", "executor", text, _task_oversleeps(step))
    text = f"an error {after}"
    yield Fault(f"task-error-{name}", "executor", text, _task_fails(step, "error"))


FAULTS: Final = (
    *(fault for step in Step for fault in _of_driver(step)),
    *(fault for place, behind in _LEFT_BEHIND.items() for fault in _of_recovery(place, behind)),
    *(fault for step in TaskStep for fault in _of_task(step)),
    Fault(
        "kill-between-commits",
        "driver",
        "the driver dies behind the commit of an epoch's first output, before that of the next one",
        _dies(EndingStep.PART, "kill", 3),
    ),
    Fault(
        "lost-append",
        "log",
        "a record is in the log, and its driver is told of an error",
        _dies(LogStep.APPEND, "error", 6),
    ),
)
