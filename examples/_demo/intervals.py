"""Time intervals of a run, for the picture: attempts at epochs, and times without a driver."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from eos.protocol import LogRecord, State
from examples._demo.subprocesses import Event


class AttemptPhase(Enum):
    """The phase of an attempt during an interval; ``value`` is the legend's text."""

    WRITTEN = "written"
    IN_DOUBT = "prepared, then committed at the end of this bar"
    ABORTED = "aborted: no reader sees its rows"
    REPEATED = "written, and written again later"


@dataclass(frozen=True)
class Interval:
    """A part of an attempt; seconds since the first epoch began."""

    epoch: int
    start_s: float
    end_s: float
    phase: AttemptPhase


def logged_intervals(records: Iterable[LogRecord], began_at: float) -> list[Interval]:
    """Return all attempts in a commit log; seconds count from ``began_at``."""
    phases = {
        State.PREPARED: AttemptPhase.WRITTEN,
        State.COMMITTED: AttemptPhase.IN_DOUBT,
        State.ABORTED: AttemptPhase.ABORTED,
    }
    found: list[Interval] = []
    since: dict[str, float] = {}
    for record in records:
        if record.epoch is None or record.written_at is None:
            continue
        at_s = record.written_at.timestamp() - began_at
        if record.state in phases:
            start_s = since[record.epoch]
            found.append(Interval(int(record.epoch), start_s, at_s, phases[record.state]))
        if record.state in (State.OPEN, State.PREPARED):
            since[record.epoch] = at_s
    return found


def outages(
    events: Iterable[Event], deaths: Iterable[float], began_at: float, ended_at: float
) -> list[tuple[float, float]]:
    """Return, for each death of a driver, the seconds until the next one begins an epoch.

    Args:
        deaths, began_at, ended_at: ``time.time()`` seconds.
    """
    begins = [event.at for event in events if event.event == "begin"]
    return [
        (at - began_at, min((begin for begin in begins if begin > at), default=ended_at) - began_at)
        for at in deaths
    ]
