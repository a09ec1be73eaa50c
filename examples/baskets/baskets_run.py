"""Observations of a run: events of the programs, kills, backlog, commit log. Pure.

All times are ``time.time()`` seconds of this machine, the commit log's included.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

from eos.protocol import LogRecord, State
from examples._demo.subprocesses import Event
from examples.baskets.basket_year import Year

Victim = Literal["executor", "driver", "broker"]
VICTIMS: Final[tuple[Victim, ...]] = ("executor", "driver", "broker")


@dataclass(frozen=True)
class VictimKill:
    """A SIGKILL in ``epoch``; ``text`` says exactly which process it hit, and when."""

    what: Victim
    epoch: int
    at: float
    text: str


@dataclass
class BasketsRun:
    """One run; it fills up while the demo runs.

    Attributes:
        events: of the driver programs: ``started``, ``begin`` and ``end`` of an epoch,
            ``committed``, ``progress``, ``finished``, ``died``.
        backlog: times, and the entries that the input subscription had not acknowledged.
        unplanned: driver programs that ended with an error and were started again.
        took_over_at: when another broker served the killed broker's topics.
    """

    year: Year
    events: list[Event] = field(default_factory=list)
    kills: list[VictimKill] = field(default_factory=list)
    backlog: list[tuple[float, int]] = field(default_factory=list)
    sent: int = 0
    aborted: int = 0
    repeated: int = 0
    all_sent: bool = False
    unplanned: int = 0
    took_over_at: float | None = None
    back_at: float | None = None
    records: list[LogRecord] = field(default_factory=list)

    def on_producer_event(self, event: Event) -> None:
        """Take the figures of the producer program's event."""
        if event.event in ("sent", "finished"):
            self.sent = event.facts["sent"]
            self.aborted = event.facts["aborted"]
            self.repeated = event.facts["repeated"]
            self.all_sent = event.event == "finished"

    @property
    def share_sent(self) -> float:
        """The share of the input that was sent, from 0 to 1."""
        return self.sent / len(self.year.baskets)

    @property
    def epoch(self) -> int:
        """The newest epoch that began; -1 before the first."""
        return max((e.epoch for e in self.events if e.event == "begin"), default=-1)

    @property
    def committed(self) -> dict[int, int]:
        """The rows of each committed epoch, as reported by the drivers."""
        return {e.epoch: e.facts["rows"] for e in self.events if e.event == "committed"}

    @property
    def watermark(self) -> str:
        """The day of the watermark, as reported by the drivers."""
        marks = [e.facts["watermark"] for e in self.events if e.event == "progress"]
        return str(marks[-1])[:10] if marks and marks[-1] else ""

    @property
    def late(self) -> int:
        """The rows that were dropped because they were older than the watermark."""
        return sum(e.facts["late"] for e in self.events if e.event == "progress")

    @property
    def began_at(self) -> float:
        """When the first epoch began."""
        return min(e.at for e in self.events if e.event == "begin")

    @property
    def ended_at(self) -> float:
        """When the last epoch ended."""
        return max(e.at for e in self.events if e.event == "end")

    def kill_of(self, what: Victim) -> VictimKill | None:
        """Return the kill of a victim, or None before it."""
        return next((one for one in self.kills if one.what == what), None)

    def next_commit_s(self, kill: VictimKill) -> float | None:
        """Return the seconds from a kill to the next commit in the log."""
        times = [
            record.written_at.timestamp() - kill.at
            for record in self.records
            if record.state is State.COMMITTED and record.written_at is not None
        ]
        return min((seconds for seconds in times if seconds > 0), default=None)

    def in_state(self, state: State) -> int:
        """Return how many records of a state the log has."""
        return sum(record.state is state for record in self.records)
