"""Which faults come when. The same seed gives the same schedule, on any machine."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Self

FEWEST_FAULTS: Final = 3
MOST_FAULTS: Final = 5
QUIET_EPOCHS: Final = 2
"""At the start no fault begins."""
GAP_EPOCHS: Final = 4
"""Between two faults, and after the last: there has to be something to hit, and to recover."""
_SOAK_GAP_EPOCHS: Final = 40
_SOAK_EPOCHS_PER_S: Final = 4
_MANY_PARTITIONS: Final = 16
FEWEST_EPOCHS: Final = QUIET_EPOCHS + FEWEST_FAULTS * GAP_EPOCHS


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
    """

    seed: int
    epochs: int
    rows: int
    padding: int
    tasks: int
    partitions: int
    keyed: bool
    faults: tuple[Planned, ...] = ()

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


def draw(seed: int, names: Sequence[str], *, epochs: int = 24) -> Schedule:
    """The schedule of a seed: different kinds of faults, in the order of their times.

    Args:
        names: what there is to choose from; their order counts.
        epochs: at least ``FEWEST_EPOCHS``; fewer than 22 leave no room for five faults.
    """
    rng = random.Random(seed)
    room = (epochs - QUIET_EPOCHS) // GAP_EPOCHS
    count = min(len(names), room, rng.randint(FEWEST_FAULTS, MOST_FAULTS))
    spare = epochs - QUIET_EPOCHS - count * GAP_EPOCHS
    shifts = sorted(rng.randint(0, spare) for _ in range(count))
    faults = [
        Planned(
            name,
            epoch=QUIET_EPOCHS + n * GAP_EPOCHS + shifts[n],
            delay_s=round(rng.uniform(0.0, 1.2), 3),
            hold_s=round(rng.uniform(0.5, 4.0), 1),
        )
        for n, name in enumerate(rng.sample(list(names), count))
    ]
    return Schedule(
        seed=seed,
        epochs=epochs,
        rows=rng.choice([20, 200, 2000]),
        padding=rng.choice([0, 100, 1000]),
        tasks=rng.choice([1, 2, 4]),
        partitions=rng.choice([1, 2, 4]),
        keyed=rng.random() < 0.7,
        faults=tuple(faults),
    )


def only(*names: str, keyed: bool = True) -> Schedule:
    """These faults one after the other, each when its epoch begins; all else is always the same.

    Args:
        keyed: False: no keys, and so many partitions that some stay unwritten for long.
    """
    faults = tuple(
        Planned(name, QUIET_EPOCHS + n * GAP_EPOCHS, 0.0, 2.0) for n, name in enumerate(names)
    )
    return Schedule(
        seed=0,
        epochs=QUIET_EPOCHS + (len(names) + 1) * GAP_EPOCHS,
        rows=200,
        padding=100,
        tasks=2,
        partitions=2 if keyed else _MANY_PARTITIONS,
        keyed=keyed,
        faults=faults,
    )


def soak(seed: int, names: Sequence[str], *, minutes: float) -> Schedule:
    """A long run in one life of the driver: small epochs, now and then a fault.

    Args:
        names: of faults that the driver survives.
    """
    rng = random.Random(seed)
    epochs = max(FEWEST_EPOCHS, int(minutes * 60 * _SOAK_EPOCHS_PER_S))
    faults = [
        Planned(rng.choice(list(names)), epoch, 0.2, round(rng.uniform(0.5, 2.0), 1))
        for epoch in range(_SOAK_GAP_EPOCHS, epochs, _SOAK_GAP_EPOCHS)
    ]
    return Schedule(
        seed=seed,
        epochs=epochs,
        rows=50,
        padding=100,
        tasks=2,
        partitions=2,
        keyed=True,
        faults=tuple(faults),
    )
