"""The whole system: two driver slots and the world; its possible steps and its invariants."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from eos.protocol import State
from tests.model import broker as pulsar
from tests.model.broker import Status
from tests.model.driver import EPOCHS, STOPPED, Driver, Pc, steps
from tests.model.rules import Rules
from tests.model.tasks import Phase, haunting
from tests.model.world import Faults, Frame, Stored, World

SLOTS = 2


class System(NamedTuple):
    """One state of the search. The slots are interchangeable: they are sorted by run."""

    world: World
    drivers: tuple[Driver, ...] = (Driver(),) * SLOTS


def initial(faults: Faults) -> System:
    """The state before the first step."""
    return System(World(faults=faults))


def successors(system: System, rules: Rules) -> Iterator[tuple[str, System]]:
    """All possible next steps, each with its name."""
    world, drivers = system
    for slot, driver in enumerate(drivers):
        for name, after, changed in steps(world, driver, rules):
            yield f"run {driver.run} {name}", _with(after, drivers, slot, changed)
        if driver.pc not in STOPPED and world.faults.crashes:
            crashed = world.spend("crashes")
            yield f"run {driver.run} dies", _with(crashed, drivers, slot, Driver(run=driver.run))
    yield from _starts(system)
    yield from _events(system)
    for zombie in dict.fromkeys(world.zombies):
        for name, after in haunting(world, zombie, rules):
            yield name, System(after, drivers)


def _with(world: World, drivers: tuple[Driver, ...], slot: int, driver: Driver) -> System:
    changed = (*drivers[:slot], driver, *drivers[slot + 1 :])
    return System(world, tuple(sorted(changed, key=lambda one: one.run)))


def _starts(system: System) -> Iterator[tuple[str, System]]:
    world, drivers = system
    if not world.faults.lives:
        return
    for slot, driver in enumerate(drivers):
        if driver.pc in STOPPED and driver.pc is not Pc.DONE:
            run = world.faults.lives
            fresh = Driver(pc=Pc.CLAIM, run=run, seen=len(world.log))
            yield f"run {run} starts", _with(world.spend("lives"), drivers, slot, fresh)
            return  # the slots are interchangeable: the other one adds no new state


def _events(system: System) -> Iterator[tuple[str, System]]:
    world, drivers = system
    broker, faults = world.broker, world.faults
    for frame in dict.fromkeys(world.frames):
        name = f"the row of task {frame.row.task}, epoch {frame.row.epoch} arrives in {frame.txn}"
        yield name, _deliver(system, frame)
    for number, txn in enumerate(broker.txns):
        if txn.status is Status.OPEN and txn.is_ours and faults.expiries:
            aborted = pulsar.put(broker, number, txn._replace(status=Status.ABORTED))
            after = world.spend("expiries")._replace(broker=aborted)
            yield f"transaction {number} expires", System(after, drivers)
        if txn.status is Status.HALF and faults.reloads:
            done = pulsar.put(broker, number, txn._replace(status=Status.COMMITTED))
            after = world.spend("reloads")._replace(broker=done)
            yield f"the coordinator loads, and finishes {number}", System(after, drivers)
    if faults.trims and not broker.is_trimmed:
        after = world.spend("trims")._replace(broker=broker._replace(is_trimmed=True))
        yield "the receipt topic is trimmed", System(after, drivers)
    # Between finding the mark and END_TXN there is no time to set up another cluster.
    if faults.wipes and all(driver.pc in STOPPED for driver in drivers):
        after = world.spend("wipes")._replace(broker=pulsar.wipe(broker))
        after = after._replace(frames=(), zombies=(), calls=())
        yield "the cluster is replaced by another one", System(after, drivers)


def _deliver(system: System, frame: Frame) -> System:
    world, drivers = system
    frames = list(world.frames)
    frames.remove(frame)
    broker = pulsar.land(world.broker, frame.txn, frame.mark, frame.row)
    told = tuple(_tell(driver, frame) for driver in drivers)
    return System(world._replace(broker=broker, frames=tuple(frames)), told)


def _tell(driver: Driver, frame: Frame) -> Driver:
    """Acknowledge a row. The broker does so also in an ended transaction (measured)."""
    entry, row = driver.entry, frame.row
    if driver.pc is not Pc.WRITE or entry is None or (entry.txn, entry.mark) != frame[:2]:
        return driver
    task = driver.tasks[row.task]
    if task.phase is not Phase.SENT or task.copy != row.copy:
        return driver
    acked = (*driver.tasks[: row.task], task._replace(phase=Phase.ACKED))
    return driver._replace(tasks=(*acked, *driver.tasks[row.task + 1 :]))


def violation(system: System) -> str:
    """The violated invariant; empty if the state is correct."""
    world, drivers = system
    if world.broker.hazard:
        return world.broker.hazard
    if world.broker.is_wiped:
        return ""  # the data is gone with its cluster; only hazards can still be checked
    wrong = _wrong_transaction(world) or _wrong_log(world) or _wrong_table(world)
    if not wrong and any(driver.pc is Pc.DONE for driver in drivers):
        wanted = sorted(
            (one.epoch, task)
            for one in world.log
            if one.state is State.COMMITTED
            for task in one.tasks
        )
        done = {epoch for epoch, _ in wanted}
        if len(done) < EPOCHS or [row[:2] for row in pulsar.readable(world.broker)] != wanted:
            wrong = "a driver is done, and not every row is there exactly once"
    return wrong


def _wrong_transaction(world: World) -> str:
    epochs = []
    for number, txn in enumerate(world.broker.txns):
        if txn.status not in (Status.COMMITTED, Status.HALF):
            continue
        counted = [one for one in world.log if one.mark == txn.mark and one.state is State.PREPARED]
        rows = [row[:2] for row in txn.rows]
        epochs.append(txn.rows[0].epoch if txn.rows else -1)
        if rows != [(epochs[-1], task) for one in counted for task in one.tasks]:
            return f"transaction {number} is committed with the rows {rows}"
    return "" if len(epochs) == len(set(epochs)) else "an epoch is committed twice"


def _wrong_table(world: World) -> str:
    """Check that topic and table hold the same attempts, for those that the log has finished."""
    topic = {
        txn.mark
        for txn in world.broker.txns
        if txn.status in (Status.COMMITTED, Status.HALF) and txn.is_ours
    }
    for files in world.files:
        if files.stored is Stored.COMMITTED and files.mark not in topic:
            return f"the table has epoch {files.epoch}, and the topic does not"
    # Files that a run stages after it was fenced belong to no attempt; a vacuum removes them.
    prepared = {one.mark for one in world.log if one.state is State.PREPARED}
    for entry in world.log if world.faults.tables else ():
        stored = world.stored(entry)
        if entry.state is State.COMMITTED and stored is not Stored.COMMITTED:
            return f"the log says COMMITTED, and the table's files are {stored.name}"
        is_left = stored is Stored.STAGED and entry.mark in prepared
        if entry.state is State.ABORTED and (is_left or stored is Stored.COMMITTED):
            return f"the log says ABORTED, and the table's files are {stored.name}"
    return ""


def _wrong_log(world: World) -> str:
    for entry in world.log:
        if entry.state not in (State.COMMITTED, State.ABORTED):
            continue
        status = world.broker.txns[entry.txn].status
        is_committed = status in (Status.COMMITTED, Status.HALF)
        # Without its mark, recovery does not end it by id. It can't be committed, and expires.
        may_be_open = world.broker.is_trimmed and entry.state is State.ABORTED
        is_open = status is Status.OPEN and not may_be_open
        if (entry.state is State.COMMITTED) != is_committed or is_open:
            return f"the log says {entry.state.value} of {entry.txn}, the broker {status.name}"
    return ""
