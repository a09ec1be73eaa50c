"""A schedule: what one run has for input, and which faults come when. Data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Self


@dataclass(frozen=True)
class Planned:
    """One fault: ``delay_s`` after its epoch was given to the driver, for ``hold_s``."""

    fault: str
    epoch: int
    delay_s: float
    hold_s: float

    def __str__(self) -> str:
        return f"{self.fault} in epoch {self.epoch} + {self.delay_s:.2f} s for {self.hold_s:.1f} s"


@dataclass(frozen=True)
class Schedule:
    """One run.

    Attributes:
        seed: of the records, and of the faults when they were drawn.
        rows: records in each epoch. ``padding``: characters that each has besides.
        tasks: Spark tasks that write an epoch.
        partitions: of the topic.
        keyed: whether records have keys.
        conditions: what holds all the time (``eos.chaos.faults.conditions``), by name.
        brokers: of the cluster; 1: one broker that is all there is.
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
        """The names of its faults."""
        return {planned.fault for planned in self.faults}

    def keep(self, numbers: Sequence[int]) -> Self:
        """The same run with only some of its faults, by their place from 1.

        Raises:
            IndexError: there is no such fault.
        """
        return replace(self, faults=tuple(self.faults[number - 1] for number in sorted(numbers)))

    def to_dict(self) -> dict[str, Any]:
        """For the report."""
        return asdict(self)
