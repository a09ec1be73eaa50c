"""The options of ``eos chaos run``, and what their texts mean."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Annotated

import typer

from eos.chaos.faults import FAULTS
from eos.chaos.faults.conditions import CONDITIONS
from eos.chaos.planning import FEWEST_EPOCHS, clash, drawn
from eos.chaos.workloads import OWN
from eos.errors import ConfigurationError
from eos.standalone.maven import DEFAULT_PULSAR_VERSION, PULSAR_VERSION_VARIABLE

Schedules = Annotated[int, typer.Option(min=1, help="How many schedules, one seed each.")]
Seed = Annotated[int, typer.Option(min=0, help="Of the first one; the others follow it.")]
Faults = Annotated[
    str,
    typer.Option(
        metavar="LIST",
        help="Draw from these only: names, or what they hit; see `eos chaos faults`.",
    ),
]
Always = Annotated[
    str,
    typer.Option(
        metavar="LIST", help="Conditions that each schedule of a seed has, as `notebook`."
    ),
]
Workload = Annotated[
    str, typer.Option(metavar="MODULE:FUNC", help="What to run; `stream` is eos's own sink.")
]
ReportFolder = Annotated[
    Path, typer.Option(help="Folder of the report. What is there already is not run again.")
]
Epochs = Annotated[int, typer.Option(min=FEWEST_EPOCHS, help="Micro-batches of each schedule.")]
Singles = Annotated[bool, typer.Option("--singles", help="Instead of seeds: each fault alone.")]
Pairs = Annotated[
    bool, typer.Option("--pairs", help="Instead of seeds: each fault and then each other.")
]
SoakMinutes = Annotated[
    float | None,
    typer.Option(min=1, help="Instead of seeds: one run for so long, whose driver must not grow."),
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
    str, typer.Option(metavar="N,N", help="Only these faults of the schedule, from 1.")
]
Shard = Annotated[
    str, typer.Option(metavar="K/N", help="Only the K-th of N parts of the schedules.")
]
Hours = Annotated[float | None, typer.Option(min=0, help="Go on with further seeds for so long.")]
Shrink = Annotated[
    bool, typer.Option(help="Look for the fewest faults with which a schedule still fails.")
]
Brokers = Annotated[
    int, typer.Option(min=1, help="From 2 on: a cluster, of which parts can be killed and moved.")
]
PulsarVersion = Annotated[
    str | None,
    typer.Option(
        envvar=PULSAR_VERSION_VARIABLE,
        help=f"Of Pulsar; {DEFAULT_PULSAR_VERSION} when nothing is said.",
    ),
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Tell each thing.")]


def parse_shard(text: str) -> tuple[int, int]:
    """``2/6`` as two numbers.

    Raises:
        ConfigurationError: it is not that.
    """
    try:
        part, parts = (int(number) for number in text.split("/"))
    except ValueError:
        part, parts = 0, 0
    if not 1 <= part <= parts:
        raise ConfigurationError(
            f"--shard {text!r} is not K/N.", hint="Say 2/6 for the second of six parts."
        )
    return part, parts


def parse_faults(text: str, *, singles: bool, brokers: int = 1) -> list[str]:
    """Names of faults; ``all`` are all that may come together, or with ``singles`` all there are.

    A name of a part, as ``cluster``, stands for the faults that hit it.

    Raises:
        ConfigurationError: there is no such fault, it has to be alone, or it needs other brokers.
    """
    if text == "all":
        every = [name for name, fault in FAULTS.items() if fault.runs_on(brokers)]
        return [*(every if singles else drawn(brokers)), *CONDITIONS]
    wanted = [name.strip() for name in text.split(",") if name.strip()]
    names = [name for one in wanted for name in _part(one, singles, brokers) or [one]]
    known = [*FAULTS, *CONDITIONS]
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        raise ConfigurationError(
            f"--faults: there is no {', '.join(unknown) or 'name'}.",
            hint=f"Choose from {', '.join(known)}.",
        )
    alone = [name for name in names if name in FAULTS and not FAULTS[name].is_drawn]
    if alone and not singles:
        raise ConfigurationError(
            f"--faults: nothing can come after {', '.join(alone)}.", hint="Add --singles."
        )
    for name in names:
        if name in FAULTS and not FAULTS[name].runs_on(brokers):
            more = "several brokers" if brokers == 1 else "one broker alone"
            raise ConfigurationError(
                f"--faults: {name} needs {more}.",
                hint="Add --brokers 2." if brokers == 1 else "Leave out --brokers.",
            )
    return names


def _part(name: str, singles: bool, brokers: int) -> list[str]:
    """The faults that hit it, of those that can be here."""
    found = [one for one in FAULTS.values() if one.part == name and (singles or one.is_drawn)]
    return [one.name for one in found if one.runs_on(brokers)]


def parse_always(text: str, workload: str) -> list[str]:
    """Names of conditions, at most one of each group.

    Raises:
        ConfigurationError: there is no such condition, two can't hold together, or this workload
            can't have it.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in CONDITIONS]
    if unknown:
        raise ConfigurationError(
            f"--always: there is no condition {', '.join(unknown)}.",
            hint=f"Choose from {', '.join(CONDITIONS)}.",
        )
    for one, other in combinations(names, 2):
        if clash(one, other):
            raise ConfigurationError(
                f"--always: {one} and {other} can't hold together.", hint="Leave one out."
            )
    others = sorted(set(names) - set(for_workload(names, workload)))
    if others:
        raise ConfigurationError(
            f"--always: only {OWN} can be run with {', '.join(others)}.", hint="Leave it out."
        )
    return names


def for_workload(names: list[str], workload: str) -> list[str]:
    """Without what only the harness's own workload knows, for another one."""
    known = FAULTS | CONDITIONS
    return [name for name in names if workload == OWN or not known[name].needs_own]


def parse_keep(text: str) -> list[int] | None:
    """``1,3`` as numbers; None when nothing is said.

    Raises:
        ConfigurationError: they are not numbers from 1.
    """
    if not text:
        return None
    numbers = [int(part) if part.strip().isdecimal() else 0 for part in text.split(",")]
    if min(numbers) < 1:
        raise ConfigurationError(f"--keep {text!r}: give the faults' numbers, as 1,3.")
    return numbers
