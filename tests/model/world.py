"""State that two drivers share: the log, the broker, frames under way, remaining faults."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple, Self

from eos.protocol import State
from tests.model.broker import Broker, Row, is_same
from tests.model.records import TASKS, Entry, Log


class Frame(NamedTuple):
    """A SEND that has left its task. It arrives at any later moment, or never."""

    txn: int
    mark: int
    row: Row


class Zombie(NamedTuple):
    """A run of a task that Spark has forgotten; it may continue at any later moment."""

    txn: int
    mark: int
    epoch: int
    task: int
    copy: int
    phase: int


class Call(NamedTuple):
    """The roll call after one mark: the runs that answered before it was closed, in order."""

    mark: int
    is_closed: bool = False
    answers: tuple[tuple[int, ...], ...] = ((),) * TASKS


class Faults(NamedTuple):
    """How many faults of each kind may still happen."""

    lives: int = 2
    crashes: int = 0
    replies: int = 0
    expiries: int = 0
    tasks: int = 0
    reloads: int = 0
    trims: int = 0
    wipes: int = 0
    swallows: int = 0
    empties: int = 0
    tables: int = 0
    """Not a fault: each epoch has a second output, a table."""


class Stored(IntEnum):
    """State of an attempt's files in the table's folder."""

    NEVER = 0
    STAGED = 1
    COMMITTED = 2
    GONE = 3


class Files(NamedTuple):
    """The files of one attempt, by its mark."""

    mark: int
    epoch: int
    stored: Stored


class World(NamedTuple):
    """The whole state except the drivers."""

    log: Log = ()
    broker: Broker = Broker()
    frames: tuple[Frame, ...] = ()
    zombies: tuple[Zombie, ...] = ()
    calls: tuple[Call, ...] = ()
    files: tuple[Files, ...] = ()
    faults: Faults = Faults()

    def spend(self, fault: str) -> Self:
        """Use up one fault of a kind."""
        left = getattr(self.faults, fault) - 1
        return self._replace(faults=self.faults._replace(**{fault: left}))

    def send(self, frame: Frame) -> Self:
        """Put a frame under way."""
        return self._replace(frames=tuple(sorted((*self.frames, frame))))

    def haunt(self, zombie: Zombie) -> Self:
        """Add a forgotten run."""
        return self._replace(zombies=tuple(sorted((*self.zombies, zombie))))

    def exorcise(self, zombie: Zombie) -> Self:
        """Remove a forgotten run that has moved on or ended."""
        left = list(self.zombies)
        left.remove(zombie)
        return self._replace(zombies=tuple(left))

    def call(self, mark: int) -> Call:
        """The roll call after a mark."""
        return next((call for call in self.calls if call.mark == mark), Call(mark))

    def answer(self, mark: int, task: int, copy: int) -> tuple[Self, bool]:
        """Store an answer; also return whether earlier answers allow its sender to send."""
        call = self.call(mark)
        if call.is_closed:
            return self, False  # it is no longer counted
        before = call.answers[task]
        answers = (*call.answers[:task], (*before, copy), *call.answers[task + 1 :])
        return self._put(call._replace(answers=answers)), not before

    def close(self, mark: int) -> tuple[Self, Call]:
        """Close the roll call, and read the answers."""
        call = self.call(mark)
        if any(zombie.mark == mark for zombie in self.zombies):
            return self._put(Call(mark, is_closed=True)), call  # answers no longer count
        others = tuple(one for one in self.calls if one.mark != mark)
        return self._replace(calls=others), call  # no run is left to answer

    def _put(self, call: Call) -> Self:
        others = [one for one in self.calls if one.mark != call.mark]
        return self._replace(calls=tuple(sorted((*others, call))))

    def stored(self, entry: Entry) -> Stored:
        """State of an attempt's files."""
        found = (one.stored for one in self.files if one.mark == entry.mark)
        return next(found, Stored.NEVER)

    def store(self, entry: Entry, stored: Stored) -> Self:
        """Stage, commit or delete the files of an attempt."""
        others = [one for one in self.files if one.mark != entry.mark]
        return self._replace(files=tuple(sorted((*others, Files(entry.mark, entry.epoch, stored)))))

    def checked_table(self, entry: Entry, *, commit: bool) -> Self:
        """Check, when the table's part is ended, that the log has it (I1)."""
        decision = State.PREPARED if commit else State.ABORTING
        if any((one.mark, one.state) == (entry.mark, decision) for one in self.log):
            return self
        hazard = f"the table's part is ended without {decision.value} in the log"
        return self._replace(broker=self.broker._replace(hazard=hazard))

    def checked_end(self, entry: Entry, *, commit: bool) -> Self:
        """Check, when END_TXN is sent, that the log has it (I1, I6) and that we may end it (I8)."""
        decision = State.PREPARED if commit else State.ABORTING
        ours = [one for one in self.log if (one.txn, one.mark) == (entry.txn, entry.mark)]
        hazard = ""
        if not any(one.state is decision for one in ours):
            hazard = f"END_TXN without {decision.value} in the log"
        elif entry.txn < len(self.broker.txns) and not is_same(self.broker, entry.txn, entry.mark):
            hazard = "a stranger's transaction was ended by its number"
        if not hazard:
            return self
        return self._replace(broker=self.broker._replace(hazard=hazard))
