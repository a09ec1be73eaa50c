"""Runs of an epoch's tasks: those whose results Spark uses, and those that it has forgotten.

A run answers the roll call, sends its row, and waits for the receipt. Spark runs a task again when
an executor is lost, a fetch fails, or a worker hangs. The previous run is then a zombie: it may
continue at any later moment, or never. The records between the mark and a run's own answer are
fixed when the answer is stored, so answering and reading are one step here.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

from tests.model import broker as pulsar
from tests.model.broker import Row, Status
from tests.model.records import Entry
from tests.model.rules import Rules
from tests.model.world import Frame, World, Zombie


class Phase(IntEnum):
    """Phase of one run."""

    IDLE = 0
    CLEARED = 1
    SENT = 2
    ACKED = 3
    FAILED = 4
    EMPTY = 5


ENDED = (Phase.ACKED, Phase.FAILED, Phase.EMPTY)


class Task(NamedTuple):
    """The run whose result Spark will use; ``copy`` distinguishes it from the task's other runs."""

    phase: Phase = Phase.IDLE
    copy: int = 0


TaskStep = tuple[str, World, Task]


def steps(world: World, entry: Entry, number: int, task: Task, rules: Rules) -> Iterator[TaskStep]:
    """The possible next steps of one task's run."""
    match task.phase:
        case Phase.IDLE if not rules.answers:
            yield "does not answer", world, task._replace(phase=Phase.CLEARED)
        case Phase.IDLE:
            yield from _answer(world, entry, number, task, rules)
        case Phase.CLEARED:
            yield from _send(world, entry, number, task)
        case Phase.SENT:
            yield from _await_receipt(world, entry, number, task, rules)
    if task.phase is Phase.IDLE and world.faults.empties:
        yield "finds no rows", world.spend("empties"), task._replace(phase=Phase.EMPTY)
    if world.faults.tasks and task.phase is not Phase.FAILED:
        again = Task(copy=task.copy + 1)
        poorer = world.spend("tasks")
        if task.phase in (Phase.IDLE, Phase.CLEARED):
            left = Zombie(entry.txn, entry.mark, entry.epoch, number, task.copy, task.phase)
            poorer = poorer.haunt(left)
        yield "is run again", poorer, again


def _answer(
    world: World, entry: Entry, number: int, task: Task, rules: Rules
) -> Iterator[TaskStep]:
    if not pulsar.finds_mark(world.broker, entry.txn, entry.mark):
        yield "can't answer", world, task._replace(phase=Phase.FAILED)
        return
    after, may_send = world.answer(entry.mark, number, task.copy)
    if may_send or not rules.obeys_roll_call:
        yield "answers", after, task._replace(phase=Phase.CLEARED)
    else:
        yield "answers, and must not send", after, task._replace(phase=Phase.FAILED)
    if world.faults.replies:
        yield "answers, no reply", after.spend("replies"), task._replace(phase=Phase.FAILED)


def _send(world: World, entry: Entry, number: int, task: Task) -> Iterator[TaskStep]:
    if not takes_rows(world, entry.txn):
        yield "can't register", world, task._replace(phase=Phase.FAILED)
        return
    frame = Frame(entry.txn, entry.mark, Row(entry.epoch, number, task.copy))
    yield "sends its row", world.send(frame), task._replace(phase=Phase.SENT)


def _await_receipt(
    world: World, entry: Entry, number: int, task: Task, rules: Rules
) -> Iterator[TaskStep]:
    if not rules.waits_for_receipts:
        yield "does not wait", world, task._replace(phase=Phase.ACKED)
    if not world.faults.replies:
        return
    poorer = world.spend("replies")
    if rules.resends:
        frame = Frame(entry.txn, entry.mark, Row(entry.epoch, number, task.copy))
        yield "sends again", poorer.send(frame), task
    else:
        yield "misses its receipt", poorer, task._replace(phase=Phase.FAILED)


def takes_rows(world: World, number: int) -> bool:
    """Whether ADD_PARTITION_TO_TXN is accepted."""
    txns = world.broker.txns
    return number < len(txns) and txns[number].status is Status.OPEN and txns[number].is_ours


def haunting(world: World, zombie: Zombie, rules: Rules) -> Iterator[tuple[str, World]]:
    """The possible next steps of a run that Spark has forgotten."""
    name = f"a forgotten run of task {zombie.task}, epoch {zombie.epoch}"
    gone = world.exorcise(zombie)
    if zombie.phase == Phase.IDLE and rules.answers:
        if not pulsar.finds_mark(world.broker, zombie.txn, zombie.mark):
            yield f"{name} can't answer", gone
            return
        after, may_send = gone.answer(zombie.mark, zombie.task, zombie.copy)
        if may_send or not rules.obeys_roll_call:
            yield f"{name} answers", after.haunt(zombie._replace(phase=Phase.CLEARED))
        else:
            yield f"{name} answers, and must not send", after
    elif not takes_rows(world, zombie.txn):
        yield f"{name} can't register", gone
    else:
        frame = Frame(zombie.txn, zombie.mark, Row(zombie.epoch, zombie.task, zombie.copy))
        yield f"{name} sends its row", gone.send(frame)
