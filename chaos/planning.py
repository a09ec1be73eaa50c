"""Makes schedules. The same seed gives the same schedule on any machine."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

from eos.chaos._soak_plan import PARTITIONS
from eos.chaos.faults import FAULTS, Fault
from eos.chaos.faults.conditions import CONDITIONS, FROM_TOPIC
from eos.chaos.job import QueryShape
from eos.chaos.schedule import Planned, Schedule

FEWEST_FAULTS: Final = 3
MOST_FAULTS: Final = 5
QUIET_EPOCHS: Final = 2  # epochs at the start without faults
# Epochs between two faults, and after the last one: something to hit, and time to recover.
GAP_EPOCHS: Final = 4
_SOAK_GAP_EPOCHS: Final = 40
_SOAK_EPOCHS_PER_S: Final = 4
_FAULT_EVERY_MIN: Final = 4
_KILLS: Final = ("executor-kill", "worker-kill")
_MANY_PARTITIONS: Final = 16
CONDITION_SHARE: Final = 0.35  # share of schedules with a condition of a given group
_WITH_CONDITION: Final = "driver-kill"
FEWEST_EPOCHS: Final = QUIET_EPOCHS + FEWEST_FAULTS * GAP_EPOCHS


def drawn(brokers: int = 1) -> list[str]:
    """The faults that random schedules may contain, with this number of brokers."""
    return [one.name for one in FAULTS.values() if one.is_drawn and one.runs_on(brokers)]


def everything(brokers: int = 1) -> list[str]:
    """The faults and conditions that schedules have by default."""
    return [*drawn(brokers), *(one.name for one in CONDITIONS.values() if one.is_drawn)]


def draw(
    seed: int,
    names: Sequence[str],
    *,
    epochs: int = 24,
    always: Sequence[str] = (),
    brokers: int = 1,
) -> Schedule:
    """Draw the schedule of a seed: faults of different kinds, in order of time.

    Args:
        names: of faults and conditions to choose from; their order matters.
        epochs: at least ``FEWEST_EPOCHS``; five faults need at least 22.
        always: conditions that always hold; no others of their groups are drawn.
        brokers: number of brokers; with one, faults of a cluster are not drawn.
    """
    rng = random.Random(seed)
    conditions = _conditions(seed, names, always)
    # First: a fault that can hit nothing would only be reported as missed.
    names = [name for name in names if name in FAULTS and fits(FAULTS[name], conditions, brokers)]
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
        for n, name in enumerate(_choice(rng, names, count))
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
        conditions=conditions,
        brokers=brokers,
    )


def is_empty(schedule: Schedule, names: Sequence[str]) -> bool:
    """Whether it has none of the wanted faults (without any, of the conditions)."""
    return not (schedule.faults if FAULTS.keys() & set(names) else schedule.conditions)


def _conditions(seed: int, names: Sequence[str], always: Sequence[str]) -> tuple[str, ...]:
    # Its own generator: another condition must not change a seed's faults.
    rng = random.Random(f"conditions of {seed}")
    groups: dict[str, list[str]] = {}
    for name in names:
        if name in CONDITIONS:
            groups.setdefault(CONDITIONS[name].group, []).append(name)
    drawn = [rng.choice(group) for group in groups.values() if rng.random() < CONDITION_SHARE]
    holding = list(always)
    for name in drawn:
        if not any(clash(name, other) for other in holding):
            holding.append(name)
    return tuple(holding)


def clash(one: str, other: str) -> bool:
    """Whether two conditions exclude each other."""
    first, second = CONDITIONS[one], CONDITIONS[other]
    return (
        first.group == second.group
        or first.group in second.leaves_out
        or second.group in first.leaves_out
    )


def fits(fault: Fault, conditions: Sequence[str], brokers: int = 1) -> bool:
    """Whether the fault can hit something, with these conditions and brokers."""
    if not fault.runs_on(brokers):
        return False
    if any(fault.name in CONDITIONS[name].excludes for name in conditions):
        return False
    there = {one for name in conditions for one in (name, CONDITIONS[name].includes)}
    if fault.needs and fault.needs not in there:
        return False
    if fault.needs_input_topic and not any(CONDITIONS[one].has_input_topic for one in conditions):
        return False
    return not fault.shapes or shape_of(conditions) in fault.shapes


def shape_of(conditions: Sequence[str]) -> QueryShape:
    """The shape of the job's query."""
    shapes: list[QueryShape] = [CONDITIONS[name].shape for name in conditions]
    return next((shape for shape in shapes if shape != "stream"), "stream")


def _choice(rng: random.Random, names: Sequence[str], count: int) -> list[str]:
    left = list(names)
    chosen: list[str] = []
    while len(chosen) < count:
        met = {FAULTS[name].part for name in chosen}
        parts = {FAULTS[name].part for name in left}
        # Of different parts if possible. Sorted: the order of a set differs between processes.
        part = rng.choice(sorted(parts - met or parts))
        chosen.append(rng.choice([name for name in left if FAULTS[name].part == part]))
        left.remove(chosen[-1])
    return chosen


def only(*names: str, keyed: bool = True, brokers: int = 1) -> Schedule:
    """A fixed schedule of these faults, one after the other.

    A condition holds all the time; without a fault, it is combined with a kill of the driver.

    Args:
        keyed: if False, no keys, and so many partitions that some stay empty for long.
    """
    conditions = tuple(name for name in names if name in CONDITIONS)
    names = tuple(name for name in names if name in FAULTS)
    if conditions and not names:  # a condition alone would only show that the job runs
        names = (_WITH_CONDITION,)
    for name in names:  # a fault may need a query shape
        if not fits(FAULTS[name], conditions, brokers):
            conditions += tuple(n for n in FAULTS[name].shapes if n in CONDITIONS)
            conditions += (FROM_TOPIC,) if FAULTS[name].needs_input_topic else ()
            conditions += tuple(n for n in (FAULTS[name].needs,) if n)
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
        conditions=conditions,
        brokers=brokers,
    )


def soak(seed: int, *, minutes: float, brokers: int = 1) -> Schedule:
    """A long run of one driver, with small epochs and a fault every few seconds."""
    rng = random.Random(seed)
    # The driver must live: each one starts at nothing, so growth shows only within one.
    names = [one.name for one in FAULTS.values() if one.is_survived and fits(one, (), brokers)]
    epochs = max(FEWEST_EPOCHS, int(minutes * 60 * _SOAK_EPOCHS_PER_S))
    faults = [
        Planned(rng.choice(names), epoch, 0.2, round(rng.uniform(0.5, 2.0), 1))
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
        brokers=brokers,
    )


def steady_soak(seed: int, *, rows: int, minutes: int, brokers: int) -> Schedule:
    """A long run of one driver that counts so many rows, with a fault every few minutes.

    Faults hit the broker or the cluster, and kill executors and workers; the driver survives all.
    """
    rng = random.Random(seed)
    names = [
        one.name
        for one in FAULTS.values()
        if one.is_survived and one.part in ("broker", "cluster") and fits(one, (), brokers)
    ] + list(_KILLS)
    rng.shuffle(names)  # then one after the other, so that each kind comes
    minutes_of = range(_FAULT_EVERY_MIN, minutes, _FAULT_EVERY_MIN)
    return Schedule(
        seed=seed,
        epochs=minutes,
        rows=0,
        padding=0,
        tasks=2,
        partitions=PARTITIONS,
        keyed=True,
        faults=tuple(
            Planned(names[n % len(names)], minute, 0.0, 2.0) for n, minute in enumerate(minutes_of)
        ),
        conditions=(FROM_TOPIC, "topic-and-table"),
        brokers=brokers,
        input_rows=rows,
    )
