"""States that a useful search must reach."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from eos.protocol import State
from eos.pulsar.end_rules import DataAnswer, EndAnswer, MarkAnswer, WitnessAnswer
from tests.model.broker import Status
from tests.model.driver import STOPPED, Pc
from tests.model.system import System
from tests.model.world import Stored


def _has_pc(pc: Pc) -> Callable[[System], bool]:
    return lambda system: any(driver.pc is pc for driver in system.drivers)


def _knows(answer: MarkAnswer | EndAnswer | WitnessAnswer | DataAnswer) -> Callable[[System], bool]:
    return lambda system: any(answer in driver.known for driver in system.drivers)


def _log_has(
    state: State, *, attempt: int = 0, is_expired: bool = False
) -> Callable[[System], bool]:
    return lambda system: any(
        (entry.state, entry.is_expired) == (state, is_expired) and entry.attempt >= attempt
        for entry in system.world.log
    )


def _by_recovery(state: State) -> Callable[[System], bool]:
    def holds(system: System) -> bool:
        opened = {one.mark: one.run for one in system.world.log if one.state is State.OPEN}
        return any(one.state is state and opened[one.mark] != one.run for one in system.world.log)

    return holds


def _frame_into(status: Status) -> Callable[[System], bool]:
    def holds(system: System) -> bool:
        broker = system.world.broker
        return any(
            frame.txn < len(broker.txns) and broker.txns[frame.txn].status is status
            for frame in system.world.frames
        )

    return holds


SOMETIMES: Final[dict[str, Callable[[System], bool]]] = {
    "a driver is done": _has_pc(Pc.DONE),
    "a driver is fenced": _has_pc(Pc.FENCED),
    "a driver stays in doubt": _has_pc(Pc.DOUBT),
    "two drivers live at once": lambda s: all(one.pc not in STOPPED for one in s.drivers),
    "both drivers are in the middle of an ending": lambda s: all(
        one.pc is Pc.ENDING for one in s.drivers
    ),
    "an epoch is committed at its second attempt": _log_has(State.COMMITTED, attempt=2),
    "an attempt is aborted": _log_has(State.ABORTED),
    "a transaction is proved expired": _log_has(State.ABORTED, is_expired=True),
    "recovery commits what another run prepared": _by_recovery(State.COMMITTED),
    "recovery aborts what another run opened": _by_recovery(State.ABORTED),
    "a commit is half done": lambda s: any(t.status is Status.HALF for t in s.world.broker.txns),
    "END_TXN finds the transaction over": _knows(EndAnswer.ENDED),
    "END_TXN is not answered": _knows(EndAnswer.OTHER),
    "the mark is missing": _knows(MarkAnswer.ABSENT),
    "the receipt is readable": _knows(WitnessAnswer.READABLE),
    "the receipt is proved absent": _knows(WitnessAnswer.PROVED_ABSENT),
    "the witness is silent": _knows(WitnessAnswer.UNKNOWN),
    "the witness has lost its history": _knows(WitnessAnswer.HISTORY_GONE),
    "a row is under way to an aborted transaction": _frame_into(Status.ABORTED),
    "the data of a decided transaction is readable without its receipts": _knows(
        DataAnswer.READABLE
    ),
    "not even the data proves anything": _knows(DataAnswer.UNPROVED),
    "two runs of a task have answered": lambda s: any(
        len(runs) > 1 for call in s.world.calls for runs in call.answers
    ),
    "a forgotten run is left when the roll call is closed": lambda s: any(
        s.world.call(zombie.mark).is_closed for zombie in s.world.zombies
    ),
    "a driver is refused": _has_pc(Pc.REFUSED),
    "the topic is committed, and the table not yet": lambda s: any(
        s.world.broker.txns[one.txn].status is Status.COMMITTED
        and s.world.stored(one) is Stored.STAGED
        for one in s.world.log
        if one.state is State.PREPARED and one.has_table and not s.world.broker.is_wiped
    ),
    "files are taken back, because the topic's transaction has expired": lambda s: any(
        one.state is State.ABORTING and one.is_expired and s.world.stored(one) is Stored.GONE
        for one in s.world.log
    ),
    "recovery commits the table's part of what another run prepared": lambda s: any(
        one.has_table and _by_recovery(State.COMMITTED)(s) for one in s.world.log
    ),
}
"""Name -> whether a state has the property."""
