"""What happened in one run of the job, and what readers saw of it. Pure: no broker, no Spark.

All times are ``time.time()`` seconds of this machine, the commit log's included.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple

from eos.protocol import LogRecord, State
from examples.child import Event
from examples.flights.data import Flights
from examples.flights.tally import TallyVerdict, tally

Way = Literal["today", "eos"]


@dataclass(frozen=True)
class Kill:
    """A SIGKILL. ``sent``: how many of the epoch's rows the broker had by then."""

    what: Literal["executor", "driver"]
    epoch: int
    at: float
    sent: int


class DemoWindow(NamedTuple):
    """When a watching reader got the first row of an epoch, and when it had them all."""

    first: float
    complete: float


@dataclass
class DemoRun:
    """One run. Filled while it goes on; its properties are for when it is over.

    Attributes:
        events: ``started``, ``begin`` or ``end`` of an epoch, ``finished``, ``died``.
        seen: time and flight id of each row that the watching reader got, in order.
        drained: flight ids that a fresh reader found when all was quiet.
        records: the commit log; empty for the way without one.
    """

    way: Way
    flights: Flights
    events: list[Event] = field(default_factory=list)
    kills: list[Kill] = field(default_factory=list)
    seen: list[tuple[float, int]] = field(default_factory=list)
    drained: list[int] = field(default_factory=list)
    records: list[LogRecord] = field(default_factory=list)

    @cached_property
    def verdict(self) -> TallyVerdict[int]:
        """What is wrong with what the fresh reader found."""
        return tally(self.flights.written(), self.drained)

    @property
    def extra_copies(self) -> int:
        """How many rows are there too many."""
        return sum(self.verdict.duplicates.values())

    @property
    def began_at(self) -> float:
        """When the first epoch began."""
        return min(event.at for event in self.events if event.event == "begin")

    @property
    def ended_at(self) -> float:
        """When the last epoch was done."""
        return max(event.at for event in self.events if event.event == "end")

    def last_kill(self, what: Literal["executor", "driver"]) -> Kill | None:
        """The newest kill of a kind; an earlier one of an executor met no running task."""
        return next((kill for kill in reversed(self.kills) if kill.what == what), None)

    def history(self, epoch: int) -> list[LogRecord]:
        """The commit log's records of one epoch."""
        return [record for record in self.records if record.epoch == str(epoch)]

    def complete_at(self, epoch: int) -> float:
        """When the whole epoch was written: PREPARED in the log; without a log, the job's word.

        Infinite when that never happened.
        """
        if self.way == "eos":
            times = [_at(r) for r in self.history(epoch) if r.state is State.PREPARED]
        else:
            # The first one: what came after it is the epoch once more.
            times = [e.at for e in self.events if e.event == "end" and e.epoch == epoch][:1]
        return max(times, default=float("inf"))

    @cached_property
    def windows(self) -> dict[int, DemoWindow]:
        """For each epoch, when its rows reached the watching reader."""
        found: dict[int, DemoWindow] = {}
        known: set[int] = set()
        for at, flight in self.seen:
            if flight in known:
                continue
            known.add(flight)
            epoch = self.flights.epoch_of(flight)
            found[epoch] = DemoWindow(found[epoch].first if epoch in found else at, at)
        return found

    @property
    def early_epochs(self) -> list[int]:
        """Epochs that were partly visible: the reader had rows before all were written."""
        return [
            epoch
            for epoch, window in sorted(self.windows.items())
            if window.first < self.complete_at(epoch)
        ]

    @property
    def longest_window_s(self) -> float:
        """The longest time from a reader's first row of an epoch until it had all of them."""
        return max((w.complete - w.first for w in self.windows.values()), default=0.0)

    def aborted(self) -> Iterator[LogRecord]:
        """The attempts that the log says were aborted."""
        return (record for record in self.records if record.state is State.ABORTED)


def _at(record: LogRecord) -> float:
    assert record.written_at is not None
    return record.written_at.timestamp()
