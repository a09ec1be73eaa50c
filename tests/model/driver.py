"""One driver, step by step, in the committer's order. A driver may die after each step."""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple

from eos.errors import UnfinishedEpoch
from eos.protocol import (
    ABORTED,
    COMMITTED,
    AppendState,
    EndPart,
    Fate,
    Finished,
    State,
    StayInDoubt,
    unknown,
)
from eos.pulsar.end_rules import (
    AskData,
    AskWitness,
    DataAnswer,
    EndAnswer,
    EndTransaction,
    FindMark,
    MarkAnswer,
    WitnessAnswer,
)
from tests.model import broker as pulsar
from tests.model import tasks
from tests.model.broker import Receipt, Status
from tests.model.records import TASKS, Entry, history_of, unfinished
from tests.model.rules import Known, Rules
from tests.model.tasks import Phase, Task
from tests.model.world import Stored, World

EPOCHS = 2
MAX_TRIES = 2


class Pc(IntEnum):
    """A driver's program counter: its next step."""

    OFF = 0
    CLAIM = 1
    FINISH = 2
    ENDING = 3
    DECIDE = 4
    BEGIN = 5
    OPEN = 6
    WRITE = 7
    CHECK = 8
    RECEIPT = 9
    PREPARE = 10
    DONE = 11
    FENCED = 12
    DOUBT = 13
    REFUSED = 14


STOPPED = (Pc.OFF, Pc.DONE, Pc.FENCED, Pc.DOUBT, Pc.REFUSED)


Heard = tuple[MarkAnswer, EndAnswer, WitnessAnswer, DataAnswer, bool, Fate | None]
NOTHING: Heard = (
    MarkAnswer.NOT_ASKED,
    EndAnswer.NOT_ASKED,
    WitnessAnswer.NOT_ASKED,
    DataAnswer.NOT_ASKED,
    False,
    None,
)
MARK_FOUND: Heard = (MarkAnswer.FOUND, *NOTHING[1:])
SILENT = unknown("no answer")


class Driver(NamedTuple):
    """One run of a driver.

    ``seen``: length of the log as its handle knows it. ``entry``: the transaction under way.
    ``is_recovering``: that transaction belongs to an earlier run.
    """

    pc: Pc = Pc.OFF
    run: int = -1
    seen: int = 0
    epoch: int = 0
    tries: int = 0
    entry: Entry | None = None
    known: Heard = NOTHING
    is_recovering: bool = False
    tasks: tuple[Task, ...] = ()


Step = tuple[str, World, Driver]


@lru_cache(None)
def _answers(known: Heard) -> Known:
    return Known(*known)


def steps(world: World, driver: Driver, rules: Rules) -> Iterator[Step]:
    """All steps that this driver may do next, each with its name."""
    return _STEPS[driver.pc](world, driver, rules)


def _append(world: World, driver: Driver, entry: Entry, rules: Rules, *, pc: Pc) -> Step:
    """Append, or find that another driver has appended."""
    if rules.fence and driver.seen != len(world.log):
        return f"is fenced at {entry.state.value}", world, Driver(pc=Pc.FENCED, run=driver.run)
    log = (*world.log, entry)
    if history_of(log) is None:
        broken = world.broker._replace(hazard=f"the log takes no {entry.state.value} there")
        return f"appends {entry.state.value}", world._replace(log=log, broker=broken), driver
    kept = entry if entry.state is not State.CLAIMED else driver.entry
    after = driver._replace(seen=len(log), entry=kept, pc=pc)
    name = f"appends {entry.state.value}"
    if entry.txn >= 0:
        name += f" (epoch {entry.epoch}, attempt {entry.attempt}, transaction {entry.txn})"
    return name, world._replace(log=log), after


def _claim(world: World, driver: Driver, rules: Rules) -> Iterator[Step]:
    if not rules.claims and world.log:
        # It opens the log and continues as if it were the run that the log already has.
        run = world.log[-1].run
        yield "takes no claim", world, driver._replace(run=run, pc=Pc.FINISH)
        return
    yield _append(world, driver, Entry(State.CLAIMED, driver.run), rules, pc=Pc.FINISH)


def _finish(world: World, driver: Driver, rules: Rules) -> Iterator[Step]:
    left = unfinished(world.log[: driver.seen]) if rules.finishes_first else ()
    if left:
        recovering = driver._replace(pc=Pc.ENDING, entry=left[0], known=NOTHING, is_recovering=True)
        yield f"recovers epoch {left[0].epoch}", world, recovering
    else:
        yield "has nothing to recover", world, driver._replace(pc=Pc.DECIDE)


def _decide(world: World, driver: Driver, rules: Rules) -> Iterator[Step]:
    if driver.epoch == EPOCHS:
        yield "is done", world, Driver(pc=Pc.DONE, run=driver.run)
        return
    if driver.tries and driver.epoch + 1 < EPOCHS and world.faults.swallows:
        after = driver._replace(epoch=driver.epoch + 1, tries=0)
        yield "fails, and the error is swallowed", world.spend("swallows"), after
    try:
        attempt = rules.attempt_to_run(world.log[: driver.seen], driver.epoch)
    except UnfinishedEpoch:
        yield "is refused", world, Driver(pc=Pc.REFUSED, run=driver.run)
        return
    if attempt is None:
        after = driver._replace(epoch=driver.epoch + 1, tries=0)
        yield f"skips epoch {driver.epoch}", world, after
    elif driver.tries == MAX_TRIES:
        yield "gives up", world, Driver(pc=Pc.OFF, run=driver.run)
    else:
        has_table = bool(world.faults.tables)
        entry = Entry(State.OPEN, driver.run, driver.epoch, attempt, has_table=has_table)
        yield f"runs epoch {driver.epoch}", world, driver._replace(pc=Pc.BEGIN, entry=entry)


def _begin(world: World, driver: Driver, _: Rules) -> Iterator[Step]:
    assert driver.entry is not None
    mark = world.broker.marks
    broker, number = pulsar.begin(world.broker)
    entry = driver.entry._replace(txn=number, mark=mark)
    begun = driver._replace(pc=Pc.OPEN, entry=entry)
    yield f"sends a mark, begins transaction {number}", world._replace(broker=broker), begun


def _open(world: World, driver: Driver, rules: Rules) -> Iterator[Step]:
    assert driver.entry is not None
    name, after, opened = _append(world, driver, driver.entry, rules, pc=Pc.WRITE)
    if opened.pc is Pc.WRITE:
        opened = opened._replace(tasks=(Task(),) * TASKS)
    yield name, after, opened


def _write(world: World, driver: Driver, rules: Rules) -> Iterator[Step]:
    assert driver.entry is not None
    if all(task.phase in tasks.ENDED for task in driver.tasks):
        yield "has all summaries", world, driver._replace(pc=Pc.CHECK)
    for number, task in enumerate(driver.tasks):
        for name, after, changed in tasks.steps(world, driver.entry, number, task, rules):
            yield f"task {number} {name}", after, _with_task(driver, number, changed)


def _with_task(driver: Driver, number: int, task: Task) -> Driver:
    changed = (*driver.tasks[:number], task, *driver.tasks[number + 1 :])
    return driver._replace(tasks=changed)


def _check(world: World, driver: Driver, rules: Rules) -> Iterator[Step]:
    entry = driver.entry
    assert entry is not None
    copies = tuple(-1 if task.phase is Phase.EMPTY else task.copy for task in driver.tasks)
    with_rows = tuple(number for number, copy in enumerate(copies) if copy >= 0)
    failed = tuple(task.phase is Phase.FAILED for task in driver.tasks)
    after = driver._replace(tasks=())
    if not pulsar.finds_mark(world.broker, entry.txn, entry.mark):
        yield "can't close the roll call", world, _abort(after)
        return
    if rules.closes_roll_call:
        world, call = world.close(entry.mark)
    else:
        call = world.call(entry.mark)
    if rules.is_poisoned(copies, failed, call.answers):
        yield "finds poison", world, _abort(after)
    else:
        counted = after._replace(entry=entry._replace(tasks=with_rows))
        if entry.has_table:
            world = world.store(entry, Stored.STAGED)
        yield "finds it good", world, counted._replace(pc=Pc.RECEIPT)


def _abort(driver: Driver) -> Driver:
    return driver._replace(pc=Pc.ENDING, known=NOTHING, is_recovering=False)


def _receipt(world: World, driver: Driver, rules: Rules) -> Iterator[Step]:
    entry = driver.entry
    assert entry is not None
    if not pulsar.is_same(world.broker, entry.txn, entry.mark):
        yield "can't send the receipt", world, _abort(driver)
        return
    txn = world.broker.txns[entry.txn]
    if rules.receipt_inside and txn.status is not Status.OPEN:
        yield "can't send the receipt", world, _abort(driver)
        return
    where = Receipt.INSIDE if rules.receipt_inside else Receipt.OUTSIDE
    sent = world._replace(broker=pulsar.put(world.broker, entry.txn, txn._replace(receipt=where)))
    yield "sends the receipt", sent, driver._replace(pc=Pc.PREPARE)
    if world.faults.replies:
        yield "sends the receipt, no answer", sent.spend("replies"), _abort(driver)


def _prepare(world: World, driver: Driver, rules: Rules) -> Iterator[Step]:
    assert driver.entry is not None
    prepared = driver.entry._replace(state=State.PREPARED)
    if not rules.prepares_first:
        (name, world, _), *_ = _end(world, driver._replace(entry=prepared), commit=True)
    name, after, ready = _append(world, driver, prepared, rules, pc=Pc.ENDING)
    if ready.pc is Pc.ENDING:
        ready = ready._replace(known=MARK_FOUND, is_recovering=False)
    yield name, after, ready


def _ending(world: World, driver: Driver, rules: Rules) -> Iterator[Step]:
    entry = driver.entry
    assert entry is not None
    match rules.next_action(entry, _answers(driver.known)):
        case Finished():
            yield "has ended it", world, _after_end(driver, entry)
        case StayInDoubt():
            yield "stays in doubt", world, Driver(pc=Pc.DOUBT, run=driver.run)
        case AppendState(state, expired):
            if state is State.ABORTING and not rules.aborts_by_log:
                (_, world, _), *_ = _end(world, driver, commit=False)
            was_expired = expired or (entry.has_table and entry.is_expired)
            written = entry._replace(state=state, run=driver.run, is_expired=was_expired)
            yield _append(world, driver, written, rules, pc=Pc.ENDING)
        case FindMark():
            found = pulsar.finds_mark(world.broker, entry.txn, entry.mark)
            answer = MarkAnswer.FOUND if found else MarkAnswer.ABSENT
            yield f"looks for the mark: {answer.value}", world, _knows(driver, mark=answer)
            yield from _silence(
                world, "looks for the mark", _knows(driver, mark=MarkAnswer.UNKNOWN)
            )
        case EndTransaction(commit):
            yield from _end(world, driver, commit=commit)
        case EndPart(_, commit):
            yield from _end_table(world, driver, entry, commit=commit)
        case AskWitness():
            yield from _ask(world, driver, entry, rules)
        case AskData():
            readable = pulsar.reads_data(world.broker, entry.txn, entry.mark)
            said = DataAnswer.READABLE if readable else DataAnswer.UNPROVED
            yield f"reads the data: {said.value}", world, _knows(driver, data=said)


def _after_end(driver: Driver, entry: Entry) -> Driver:
    after = driver._replace(entry=None, known=NOTHING, is_recovering=False)
    if driver.is_recovering:
        return after._replace(pc=Pc.FINISH)
    if entry.state is State.ABORTED:
        return after._replace(pc=Pc.DECIDE, tries=driver.tries + 1)
    return after._replace(pc=Pc.DECIDE, epoch=driver.epoch + 1, tries=0)


def _knows(
    driver: Driver,
    *,
    mark: MarkAnswer | None = None,
    end: EndAnswer | None = None,
    witness: WitnessAnswer | None = None,
    data: DataAnswer | None = None,
    table: Fate | None = None,
    up: bool = False,
) -> Driver:
    known = driver.known
    topic = (mark or known[0], end or known[1], witness or known[2], data or known[3])
    answers = (*topic, up, table or known[5])
    return driver._replace(known=answers)


def _silence(world: World, doing: str, driver: Driver) -> Iterator[Step]:
    """No answer: the driver asks again, or the deadline passes."""
    if world.faults.replies:
        poorer = world.spend("replies")
        yield f"{doing}: no answer", poorer, driver
        late = driver._replace(known=(*driver.known[:4], True, driver.known[5]))
        yield f"{doing}: no answer by the deadline", poorer, late


def _end(world: World, driver: Driver, *, commit: bool) -> Iterator[Step]:
    entry = driver.entry
    assert entry is not None
    doing = f"END_TXN({'commit' if commit else 'abort'}) of {entry.txn}"
    world = world.checked_end(entry, commit=commit)
    broker = world.broker
    unknown = _knows(driver, mark=MarkAnswer.NOT_ASKED, end=EndAnswer.OTHER)
    txn = broker.txns[entry.txn] if entry.txn < len(broker.txns) else None
    if txn is None or txn.status not in (Status.OPEN, Status.HALF):
        yield f"{doing}: it had ended", world, _knows(driver, end=EndAnswer.ENDED)
        yield from _silence(world, doing, unknown)
        return
    if txn.status is Status.HALF:
        yield f"{doing}: it is ending", world, _knows(driver, end=EndAnswer.ENDED)
    status = Status.COMMITTED if commit or txn.status is Status.HALF else Status.ABORTED
    done = world._replace(broker=pulsar.put(broker, entry.txn, txn._replace(status=status)))
    yield f"{doing}: OK", done, _knows(driver, end=EndAnswer.OK)
    yield from _silence(done, f"{doing}, done", unknown)
    yield from _silence(world, f"{doing}, lost on the way", unknown)
    if commit and txn.status is Status.OPEN and world.faults.replies:
        half = pulsar.put(broker, entry.txn, txn._replace(status=Status.HALF))
        yield from _silence(world._replace(broker=half), f"{doing}, half done", unknown)


def _end_table(world: World, driver: Driver, entry: Entry, *, commit: bool) -> Iterator[Step]:
    """End the second output's part, which can't expire."""
    doing = f"{'commits' if commit else 'deletes'} the files of attempt {entry.attempt}"
    world = world.checked_table(entry, commit=commit)
    stored = world.stored(entry)
    if commit:
        done = Stored.COMMITTED if stored is Stored.STAGED else stored
    else:
        done = stored if stored is Stored.COMMITTED else Stored.GONE
    fate = COMMITTED if done is Stored.COMMITTED else ABORTED
    after = world if done is stored else world.store(entry, done)
    yield f"{doing}: {fate.known.value}", after, _knows(driver, table=fate)
    if world.faults.replies:
        silent = _knows(driver, table=SILENT)
        yield f"{doing}, done: no answer", after.spend("replies"), silent
        yield f"{doing}: lost on the way", world.spend("replies"), silent


def _ask(world: World, driver: Driver, entry: Entry, rules: Rules) -> Iterator[Step]:
    broker = world.broker
    mark = pulsar.finds_mark(broker, entry.txn, entry.mark)
    answer = rules.witness(
        mark=mark,
        sentinel=pulsar.sees_sentinel(broker),
        receipt=mark and pulsar.reads_receipt(broker, entry.txn),
    )
    yield f"asks the witness: {answer.value}", world, _knows(driver, witness=answer)
    late = _knows(driver, witness=WitnessAnswer.UNKNOWN, up=True)
    if answer is WitnessAnswer.UNKNOWN:
        yield "asks the witness: no answer by the deadline", world, late
    else:
        yield from _silence(
            world, "asks the witness", _knows(driver, witness=WitnessAnswer.UNKNOWN)
        )


_STEPS = {
    Pc.CLAIM: _claim,
    Pc.FINISH: _finish,
    Pc.ENDING: _ending,
    Pc.DECIDE: _decide,
    Pc.BEGIN: _begin,
    Pc.OPEN: _open,
    Pc.WRITE: _write,
    Pc.CHECK: _check,
    Pc.RECEIPT: _receipt,
    Pc.PREPARE: _prepare,
    Pc.OFF: lambda *_: iter(()),
    Pc.DONE: lambda *_: iter(()),
    Pc.FENCED: lambda *_: iter(()),
    Pc.DOUBT: lambda *_: iter(()),
    Pc.REFUSED: lambda *_: iter(()),
}
