"""A schedule: the input of one run, and its faults with their times. Data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Self


@dataclass(frozen=True)
class Planned:
    """A fault: begins ``delay_s`` after its epoch, and lasts ``hold_s``."""

    fault: str
    epoch: int
    delay_s: float
    hold_s: float

    def __str__(self) -> str:
        return f"{self.fault} in epoch {self.epoch} + {self.delay_s:.2f} s for {self.hold_s:.1f} s"


@dataclass(frozen=True)
class Schedule:
    """The schedule of one run.

    Attributes:
        seed: of the records, and of the faults if they were drawn.
        rows: records in each input. ``padding``: additional characters in each record.
        tasks: Spark tasks that write an epoch.
        partitions: of the topic.
        keyed: whether records have keys.
        conditions: names of ``eos.chaos.faults.conditions`` that hold all the time.
        brokers: of the cluster; 1 for a standalone broker.
        input_rows: of a steady input, sent within ``epochs`` minutes; 0: ``epochs`` inputs of
            ``rows`` records.
    """

    seed: int
    epochs: int
    rows: int
    padding: int
    tasks: int
    partitions: int
    keyed: bool
    faults: tuple[Planned, ...] = ()
    conditions: tuple[str, ...] = ()
    brokers: int = 1
    input_rows: int = 0

    @property
    def kinds(self) -> set[str]:
        """The names of the faults."""
        return {planned.fault for planned in self.faults}

    def keep(self, numbers: Sequence[int]) -> Self:
        """The same schedule with only some of its faults, by number from 1.

        Raises:
            IndexError: the fault does not exist.
        """
        return replace(self, faults=tuple(self.faults[number - 1] for number in sorted(numbers)))

    def to_dict(self) -> dict[str, Any]:
        """As a dictionary, for the report."""
        return asdict(self)
