"""What happened in a run of the demo, as far as it was told or seen. Pure: no broker, no Spark.

All times are ``time.time()`` seconds of this machine, the commit log's included.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

from eos.protocol import LogRecord, State
from examples.baskets.data import Year
from examples.child import Event

Victim = Literal["executor", "driver", "broker"]
VICTIMS: Final[tuple[Victim, ...]] = ("executor", "driver", "broker")


@dataclass(frozen=True)
class Strike:
    """A SIGKILL, in ``epoch``; ``text``: what exactly it hit, and when."""

    what: Victim
    epoch: int
    at: float
    text: str


@dataclass
class BasketsRun:
    """One run. Filled while it goes on.

    Attributes:
        events: of the driver programs: ``started``, ``begin`` and ``end`` of an epoch,
            ``committed``, ``progress``, ``finished``, ``died``.
        backlog: time, and entries that the input subscription had before it.
        sent, aborted, again: as the producer program told.
        is_fed: whether it has sent everything.
        unplanned: how many driver programs ended by themselves, and were started again.
        took_over_at, back_at: when the dead broker's topics were served again, and when it was.
        records: the commit log.
    """

    year: Year
    events: list[Event] = field(default_factory=list)
    strikes: list[Strike] = field(default_factory=list)
    backlog: list[tuple[float, int]] = field(default_factory=list)
    sent: int = 0
    aborted: int = 0
    again: int = 0
    is_fed: bool = False
    unplanned: int = 0
    took_over_at: float | None = None
    back_at: float | None = None
    records: list[LogRecord] = field(default_factory=list)

    def hear_feed(self, event: Event) -> None:
        """The producer program told something."""
        if event.event in ("sent", "fed"):
            self.sent = event.facts["sent"]
            self.aborted = event.facts["aborted"]
            self.again = event.facts["again"]
            self.is_fed = event.event == "fed"

    @property
    def share_sent(self) -> float:
        """How much of the input is in the topic, of 1."""
        return self.sent / len(self.year.baskets)

    @property
    def epoch(self) -> int:
        """The newest epoch that was begun; -1 before the first."""
        return max((e.epoch for e in self.events if e.event == "begin"), default=-1)

    @property
    def committed(self) -> dict[int, int]:
        """The rows of each epoch that was committed, as the drivers told."""
        return {e.epoch: e.facts["rows"] for e in self.events if e.event == "committed"}

    @property
    def watermark(self) -> str:
        """The day that it had reached, as the drivers told."""
        marks = [e.facts["watermark"] for e in self.events if e.event == "progress"]
        return str(marks[-1])[:10] if marks and marks[-1] else ""

    @property
    def late(self) -> int:
        """How many rows came behind the watermark, and were dropped."""
        return sum(e.facts["late"] for e in self.events if e.event == "progress")

    @property
    def began_at(self) -> float:
        """When the first epoch began."""
        return min(e.at for e in self.events if e.event == "begin")

    @property
    def ended_at(self) -> float:
        """When the last epoch was done."""
        return max(e.at for e in self.events if e.event == "end")

    def strike(self, what: Victim) -> Strike | None:
        """The kill of a kind."""
        return next((one for one in self.strikes if one.what == what), None)

    def next_commit_s(self, strike: Strike) -> float | None:
        """Seconds from a kill to the next commit that the log holds."""
        times = [
            record.written_at.timestamp() - strike.at
            for record in self.records
            if record.state is State.COMMITTED and record.written_at is not None
        ]
        return min((seconds for seconds in times if seconds > 0), default=None)

    def in_state(self, state: State) -> int:
        """How many attempts came to a state, as the log says."""
        return sum(record.state is state for record in self.records)
