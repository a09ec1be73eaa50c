"""The options of ``eos chaos run``, and their parsers."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Annotated

import typer

from eos.chaos.faults import FAULTS, Fault
from eos.chaos.faults.conditions import CONDITIONS, FROM_TOPIC
from eos.chaos.planning import FEWEST_EPOCHS, clash, everything, fits
from eos.chaos.workloads import OWN
from eos.errors import ConfigurationError
from eos.testing.maven import DEFAULT_PULSAR_VERSION, PULSAR_VERSION_VARIABLE

Schedules = Annotated[int, typer.Option(min=1, help="Number of schedules, one for each seed.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the first schedule; the next ones follow.")]
Faults = Annotated[
    str,
    typer.Option(
        metavar="LIST",
        help="Draw only from these: names or parts of faults; see `eos chaos faults`.",
    ),
]
Always = Annotated[
    str,
    typer.Option(metavar="LIST", help="Conditions of every schedule, such as `notebook`."),
]
Workload = Annotated[
    str, typer.Option(metavar="MODULE:FUNC", help="The workload; by default, eos's own sink.")
]
ReportFolder = Annotated[
    Path,
    typer.Option(help="Folder of the report. Schedules that are already in it are not run again."),
]
Epochs = Annotated[int, typer.Option(min=FEWEST_EPOCHS, help="Micro-batches of each schedule.")]
Singles = Annotated[bool, typer.Option("--singles", help="Instead of seeds: each fault alone.")]
Pairs = Annotated[
    bool, typer.Option("--pairs", help="Instead of seeds: each fault and then each other.")
]
SoakMinutes = Annotated[
    float | None,
    typer.Option(
        min=1, help="Instead of seeds: one run of this many minutes, whose driver must not grow."
    ),
]
SoakRows = Annotated[
    int | None,
    typer.Option(
        min=100_000,
        help="With --soak-minutes: count this many steady rows from a topic to a topic and a "
        "table; storage must not grow either.",
    ),
]
Keep = Annotated[
    str, typer.Option(metavar="N,N", help="Run only these faults of the schedule, numbered from 1.")
]
Shard = Annotated[
    str, typer.Option(metavar="K/N", help="Run only the K-th of N parts of the schedules.")
]
Hours = Annotated[
    float | None, typer.Option(min=0, help="Continue with more seeds for this many hours.")
]
Shrink = Annotated[
    bool, typer.Option(help="Find the fewest faults with which a schedule still fails.")
]
Brokers = Annotated[
    int, typer.Option(min=1, help="With 2 or more: a cluster, with faults of its servers.")
]
PulsarVersion = Annotated[
    str | None,
    typer.Option(
        envvar=PULSAR_VERSION_VARIABLE,
        help=f"Version of Pulsar; {DEFAULT_PULSAR_VERSION} by default.",
    ),
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Print every event.")]


def parse_shard(text: str) -> tuple[int, int]:
    """Parse ``2/6``.

    Raises:
        ConfigurationError: the text is malformed.
    """
    try:
        part, parts = (int(number) for number in text.split("/"))
    except ValueError:
        part, parts = 0, 0
    if not 1 <= part <= parts:
        raise ConfigurationError(
            f"--shard must be K/N, not {text!r}.",
            hint="For example, 2/6 is the second of six parts.",
        )
    return part, parts


def parse_faults(text: str, *, singles: bool, brokers: int = 1) -> list[str]:
    """Return the names of faults; ``all`` for all that can be combined, or any with ``singles``.

    The name of a part, such as ``cluster``, means all of its faults.

    Raises:
        ConfigurationError: the fault does not exist, must be alone, or needs other brokers.
    """
    if text == "all":
        every = [name for name, fault in FAULTS.items() if fault.runs_on(brokers)]
        return [*every, *CONDITIONS] if singles else everything(brokers)
    wanted = [name.strip() for name in text.split(",") if name.strip()]
    names = [name for one in wanted for name in _part(one, singles, brokers) or [one]]
    known = [*FAULTS, *CONDITIONS]
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        raise ConfigurationError(
            f"--faults: {', '.join(unknown) or 'the empty name'} does not exist.",
            hint=f"Choose from {', '.join(known)}.",
        )
    alone = [name for name in names if name in FAULTS and not FAULTS[name].is_drawn]
    if alone and not singles:
        raise ConfigurationError(
            f"--faults: {', '.join(alone)} must be alone.", hint="Add --singles."
        )
    for name in names:
        if name in FAULTS and not FAULTS[name].runs_on(brokers):
            more = "several brokers" if brokers == 1 else "a single broker"
            raise ConfigurationError(
                f"--faults: {name} needs {more}.",
                hint="Add --brokers 2." if brokers == 1 else "Remove --brokers.",
            )
    return names


def wanted_faults(
    text: str,
    workload: str,
    *,
    singles: bool = False,
    pairs: bool = False,
    always: Sequence[str] = (),
    brokers: int = 1,
) -> list[str]:
    """The names to draw from for this workload.

    Raises:
        ConfigurationError: as ``parse_faults``; or a fault that is asked for can't be drawn.
    """
    names = for_workload(parse_faults(text, singles=singles, brokers=brokers), workload)
    if singles or pairs:  # these add the conditions that a fault needs
        drawn = names
    else:
        more = [one for one in names if one in CONDITIONS]
        given = [list(always), *([*always, one] for one in more if _agrees(one, always))]
        drawn = [
            name
            for name in names
            if name in CONDITIONS or any(fits(FAULTS[name], some, brokers) for some in given)
        ]
    if text == "all":
        return names if names == everything(brokers) else drawn
    for one in filter(None, (part.strip() for part in text.split(","))):
        asked = _part(one, singles, brokers) or [one]
        if not set(asked) & set(names):
            raise ConfigurationError(
                f"--faults: {one} needs {_needed(workload)}.", hint="Remove it."
            )
        if not set(asked) & set(drawn):
            raise _not_drawn(one, next(FAULTS[name] for name in asked if name in names), always)
    return drawn


def _agrees(condition: str, always: Sequence[str]) -> bool:
    return not any(clash(condition, other) for other in always)


def _not_drawn(asked: str, fault: Fault, always: Sequence[str]) -> ConfigurationError:
    for name in always:
        if fault.name in CONDITIONS[name].excludes:
            return ConfigurationError(
                f"--faults: {asked} is never drawn with condition {name}.",
                hint="Remove one of them.",
            )
    shapes = [one.name for one in CONDITIONS.values() if one.shape in fault.shapes]
    needed = fault.needs or (FROM_TOPIC if fault.needs_input_topic else " or ".join(shapes))
    return ConfigurationError(
        f"--faults: {asked} needs condition {needed}.", hint="Add it to --always or --faults."
    )


def _needed(workload: str) -> str:
    return f"workload {OWN}" if workload != OWN else "PySpark 4.0 or newer"


def _part(name: str, singles: bool, brokers: int) -> list[str]:
    found = [one for one in FAULTS.values() if one.part == name]
    # If none is left, all are refused by name.
    found = [one for one in found if one.runs_on(brokers)] or found
    found = [one for one in found if singles or one.is_drawn] or found
    return [one.name for one in found]


def parse_always(text: str, workload: str) -> list[str]:
    """Return the names of conditions, at most one of each group.

    Raises:
        ConfigurationError: the condition does not exist, two exclude each other, or the workload
            does not support it.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in CONDITIONS]
    if unknown:
        raise ConfigurationError(
            f"--always: condition {', '.join(unknown)} does not exist.",
            hint=f"Choose from {', '.join(CONDITIONS)}.",
        )
    for one, other in combinations(names, 2):
        if clash(one, other):
            raise ConfigurationError(
                f"--always: {one} and {other} exclude each other.", hint="Remove one of them."
            )
    unsupported = sorted(set(names) - set(for_workload(names, workload)))
    if unsupported:
        raise ConfigurationError(
            f"--always: {', '.join(unsupported)} needs {_needed(workload)}.", hint="Remove it."
        )
    return names


def for_workload(names: list[str], workload: str) -> list[str]:
    """The names that this workload supports; some need the harness's own, or newer PySpark."""
    known = FAULTS | CONDITIONS
    supported = [name for name in names if workload == OWN or not known[name].needs_own]
    if _has_data_sources():
        return supported
    return [n for n in supported if n not in CONDITIONS or not CONDITIONS[n].has_data_source]


@functools.cache
def _has_data_sources() -> bool:
    """Whether ``format("pulsar")`` exists: before 4.0 Spark has no data sources in Python."""
    return importlib.util.find_spec("pyspark.sql.datasource") is not None


def parse_keep(text: str) -> list[int] | None:
    """Parse ``1,3``; None for "".

    Raises:
        ConfigurationError: they are not numbers from 1.
    """
    if not text:
        return None
    numbers = [int(part) if part.strip().isdecimal() else 0 for part in text.split(",")]
    if min(numbers) < 1:
        raise ConfigurationError(f"--keep must be numbers of faults, such as 1,3, not {text!r}.")
    return numbers
