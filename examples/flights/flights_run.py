"""Observations of one run: the job's events, the kills, the commit log, two plain readers.

Pure. All times are ``time.time()`` seconds of this machine, the commit log's included.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Generic, Literal, NamedTuple, TypeVar

from eos.protocol import LogRecord, State
from examples._demo.subprocesses import Event
from examples.flights.flight_files import Flights

RecordT = TypeVar("RecordT", bound=Hashable)


@dataclass(frozen=True)
class Tally(Generic[RecordT]):
    """The comparison. Everything but the two totals is empty for exactly-once.

    Attributes:
        duplicates: records found too often, with the number of surplus copies.
        incomplete: epochs of which some records were found and others were not.
        unknown: records that were found, and never written.
    """

    rows_in: int
    rows_out: int
    duplicates: dict[RecordT, int]
    missing: list[RecordT]
    incomplete: list[str]
    unknown: list[RecordT]


def tally(written: Mapping[str, Iterable[RecordT]], found: Iterable[RecordT]) -> Tally[RecordT]:
    """Compare ``found`` with ``written``, the records of each committed epoch."""
    # It only counts, so it judges any way of writing; ``eos.chaos.checker`` needs a log.
    epochs = {epoch: list(records) for epoch, records in written.items()}
    expected = Counter(record for records in epochs.values() for record in records)
    counts = Counter(found)
    present = {epoch: [counts[r] > 0 for r in records] for epoch, records in epochs.items()}
    return Tally(
        rows_in=expected.total(),
        rows_out=counts.total(),
        duplicates={r: n - expected[r] for r, n in counts.items() if 0 < expected[r] < n},
        missing=[record for record in expected if counts[record] == 0],
        incomplete=[epoch for epoch, flags in present.items() if any(flags) and not all(flags)],
        unknown=[record for record in counts if record not in expected],
    )


Way = Literal["pulsar_client", "eos"]


@dataclass(frozen=True)
class Kill:
    """A SIGKILL; ``sent``: how many of the epoch's rows the broker had received by then."""

    what: Literal["executor", "driver"]
    epoch: int
    at: float
    sent: int


class VisibleWindow(NamedTuple):
    """When the watching reader received the first row of an epoch, and when its last one."""

    first: float
    complete: float


@dataclass
class FlightsRun:
    """One run. Its properties are for a complete one.

    Attributes:
        events: of the driver programs: ``started``, ``begin`` and ``end`` of an epoch,
            ``finished``, ``died``.
        seen: time and flight id of each row that the watching reader received, in order.
        drained: flight ids that a new reader found after the end.
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
    def tally(self) -> Tally[int]:
        """The written flights, compared with those that the new reader found."""
        return tally(self.flights.written(), self.drained)

    @property
    def duplicate_rows(self) -> int:
        """The number of surplus copies."""
        return sum(self.tally.duplicates.values())

    @property
    def began_at(self) -> float:
        """When the first epoch began."""
        return min(event.at for event in self.events if event.event == "begin")

    @property
    def ended_at(self) -> float:
        """When the last epoch ended."""
        return max(event.at for event in self.events if event.event == "end")

    def last_kill(self, what: Literal["executor", "driver"]) -> Kill | None:
        """Return the newest kill of a kind."""
        # An earlier one of an executor hit no running task.
        return next((kill for kill in reversed(self.kills) if kill.what == what), None)

    def history(self, epoch: int) -> list[LogRecord]:
        """Return the commit log's records of one epoch."""
        return [record for record in self.records if record.epoch == str(epoch)]

    def complete_at(self, epoch: int) -> float:
        """Return when the whole epoch was written: PREPARED in the log, or the job's own event.

        Infinite if that never happened.
        """
        if self.way == "eos":
            times = [_at(r) for r in self.history(epoch) if r.state is State.PREPARED]
        else:
            # The first time; a later one is a repetition.
            times = [e.at for e in self.events if e.event == "end" and e.epoch == epoch][:1]
        return max(times, default=float("inf"))

    @cached_property
    def windows(self) -> dict[int, VisibleWindow]:
        """For each epoch, when its rows reached the watching reader."""
        found: dict[int, VisibleWindow] = {}
        known: set[int] = set()
        for at, flight in self.seen:
            if flight in known:
                continue  # a duplicate
            known.add(flight)
            epoch = self.flights.epoch_of(flight)
            found[epoch] = VisibleWindow(found[epoch].first if epoch in found else at, at)
        return found

    @property
    def partly_visible(self) -> list[int]:
        """Epochs of which the watching reader had rows before all of them were written."""
        return [
            epoch
            for epoch, window in sorted(self.windows.items())
            if window.first < self.complete_at(epoch)
        ]

    @property
    def longest_window_s(self) -> float:
        """The longest time from a reader's first row of an epoch to its last one."""
        return max((w.complete - w.first for w in self.windows.values()), default=0.0)

    def aborted(self) -> Iterator[LogRecord]:
        """Return the attempts that the log records as aborted."""
        return (record for record in self.records if record.state is State.ABORTED)


def _at(record: LogRecord) -> float:
    assert record.written_at is not None
    return record.written_at.timestamp()
