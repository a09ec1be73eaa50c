"""What each epoch went through, as stretches of time: for the picture."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from eos.protocol import LogRecord, State
from examples.flights.run import DemoRun


class EpochFate(Enum):
    """What a stretch of an epoch's life was; ``value`` is the text of the legend."""

    WRITTEN = "written"
    IN_DOUBT = "prepared; committed at its end"
    ABORTED = "aborted: a reader sees nothing of it"
    REPEATED = "written, and left to be written again"


@dataclass(frozen=True)
class Stretch:
    """Seconds since the first epoch began."""

    epoch: int
    start_s: float
    end_s: float
    fate: EpochFate


def stretches(run: DemoRun) -> list[Stretch]:
    """All attempts at all epochs: from the commit log or, without one, from what the job told."""
    return stretches_of(run.records, run.began_at) if run.way == "eos" else _from_events(run)


def stretches_of(records: Iterable[LogRecord], began_at: float) -> list[Stretch]:
    """All attempts that a commit log holds; ``began_at``: what their seconds count from."""
    fates = {
        State.PREPARED: EpochFate.WRITTEN,
        State.COMMITTED: EpochFate.IN_DOUBT,
        State.ABORTED: EpochFate.ABORTED,
    }
    found: list[Stretch] = []
    since: dict[str, float] = {}
    for record in records:
        if record.epoch is None or record.written_at is None:
            continue
        at = record.written_at.timestamp() - began_at
        if record.state in fates:
            start_s = since[record.epoch]
            found.append(Stretch(int(record.epoch), start_s, at, fates[record.state]))
        if record.state in (State.OPEN, State.PREPARED):
            since[record.epoch] = at
    return found


def _from_events(run: DemoRun) -> list[Stretch]:
    found: list[Stretch] = []
    begun_s = 0.0
    last = {event.epoch: event.at for event in run.events if event.event == "end"}
    for event in run.events:
        if event.event == "begin":
            begun_s = event.at - run.began_at
        elif event.event == "end":
            fate = EpochFate.WRITTEN if event.at == last[event.epoch] else EpochFate.REPEATED
            found.append(Stretch(event.epoch, begun_s, event.at - run.began_at, fate))
    return found


def outages(run: DemoRun) -> list[tuple[float, float]]:
    """From each death of a driver until the next one begins an epoch; seconds, as above."""
    found: list[tuple[float, float]] = []
    for kill in run.kills:
        if kill.what == "driver":
            begins = [e.at for e in run.events if e.event == "begin" and e.at > kill.at]
            end = min(begins, default=run.ended_at)
            found.append((kill.at - run.began_at, end - run.began_at))
    return found


def readable(run: DemoRun, *, step_s: float = 0.05) -> tuple[list[float], list[int], list[int]]:
    """What the watching reader had got by when: times in seconds, flights, rows with all copies.

    One point for each ``step_s`` in which something came, and one before it.
    """
    times, flights, rows = [0.0], [0], [0]
    known: set[int] = set()
    for index, (at, flight) in enumerate(run.seen, start=1):
        at_s = at - run.began_at
        if at_s - times[-1] >= step_s:
            times += [at_s, at_s]
            flights += [flights[-1], flights[-1]]
            rows += [rows[-1], rows[-1]]
        known.add(flight)
        flights[-1], rows[-1] = len(known), index
    return times, flights, rows
