"""What two drivers share: the log, the broker, frames under way, and the faults that are left."""

from __future__ import annotations

from typing import NamedTuple, Self

from eos.transaction import State
from tests.model.broker import Broker, Row, is_same
from tests.model.records import Entry, Log


class Frame(NamedTuple):
    """A SEND that has left its task. It arrives at any later moment, or never."""

    txn: int
    mark: int
    row: Row


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


class World(NamedTuple):
    """Everything but the drivers."""

    log: Log = ()
    broker: Broker = Broker()
    frames: tuple[Frame, ...] = ()
    faults: Faults = Faults()

    def spend(self, fault: str) -> Self:
        """The world with one fault of a kind less to come."""
        left = getattr(self.faults, fault) - 1
        return self._replace(faults=self.faults._replace(**{fault: left}))

    def send(self, frame: Frame) -> Self:
        """A frame is under way."""
        return self._replace(frames=tuple(sorted((*self.frames, frame))))

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
