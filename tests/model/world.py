"""What two drivers share: the log, the broker, frames under way, and the faults that are left."""

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
    """A run of a task that Spark has forgotten, and that may go on at any later moment."""

    txn: int
    mark: int
    epoch: int
    task: int
    copy: int
    phase: int


class Call(NamedTuple):
    """The roll call behind one mark: who has answered, in order, before it was closed."""

    mark: int
    is_closed: bool = False
    answers: tuple[tuple[int, ...], ...] = ((),) * TASKS


class Faults(NamedTuple):
    """How many of each kind may still happen."""

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
    """What became of an attempt's files in the table's folder."""

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
    """Everything but the drivers."""

    log: Log = ()
    broker: Broker = Broker()
    frames: tuple[Frame, ...] = ()
    zombies: tuple[Zombie, ...] = ()
    calls: tuple[Call, ...] = ()
    files: tuple[Files, ...] = ()
    faults: Faults = Faults()

    def spend(self, fault: str) -> Self:
        """The world with one fault of a kind less to come."""
        left = getattr(self.faults, fault) - 1
        return self._replace(faults=self.faults._replace(**{fault: left}))

    def send(self, frame: Frame) -> Self:
        """A frame is under way."""
        return self._replace(frames=tuple(sorted((*self.frames, frame))))

    def haunt(self, zombie: Zombie) -> Self:
        """A run is forgotten."""
        return self._replace(zombies=tuple(sorted((*self.zombies, zombie))))

    def exorcise(self, zombie: Zombie) -> Self:
        """A forgotten run has moved on, or ended."""
        left = list(self.zombies)
        left.remove(zombie)
        return self._replace(zombies=tuple(left))

    def call(self, mark: int) -> Call:
        """The roll call behind a mark."""
        return next((call for call in self.calls if call.mark == mark), Call(mark))

    def answer(self, mark: int, task: int, copy: int) -> tuple[Self, bool]:
        """The topic takes an answer; whether its sender may send, by what stands before it."""
        call = self.call(mark)
        if call.is_closed:
            return self, False  # nobody counts it any more
        before = call.answers[task]
        answers = (*call.answers[:task], (*before, copy), *call.answers[task + 1 :])
        return self._put(call._replace(answers=answers)), not before

    def close(self, mark: int) -> tuple[Self, Call]:
        """The driver closes the roll call, and reads who has answered."""
        call = self.call(mark)
        if any(zombie.mark == mark for zombie in self.zombies):
            return self._put(Call(mark, is_closed=True)), call  # nobody counts any more
        others = tuple(one for one in self.calls if one.mark != mark)
        return self._replace(calls=others), call  # and nobody is left to answer

    def _put(self, call: Call) -> Self:
        others = [one for one in self.calls if one.mark != call.mark]
        return self._replace(calls=tuple(sorted((*others, call))))

    def stored(self, entry: Entry) -> Stored:
        """What became of the files of an attempt."""
        found = (one.stored for one in self.files if one.mark == entry.mark)
        return next(found, Stored.NEVER)

    def store(self, entry: Entry, stored: Stored) -> Self:
        """The files of an attempt, staged, committed or deleted."""
        others = [one for one in self.files if one.mark != entry.mark]
        return self._replace(files=tuple(sorted((*others, Files(entry.mark, entry.epoch, stored)))))

    def checked_table(self, entry: Entry, *, commit: bool) -> Self:
        """The table's part is ended: does the log hold it (I1)?"""
        decision = State.PREPARED if commit else State.ABORTING
        if any((one.mark, one.state) == (entry.mark, decision) for one in self.log):
            return self
        hazard = f"the table's part is ended without {decision.value} in the log"
        return self._replace(broker=self.broker._replace(hazard=hazard))

    def checked_end(self, entry: Entry, *, commit: bool) -> Self:
        """END_TXN leaves a driver: does the log hold it (I1, I6), and is it ours to end (I8)?"""
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
