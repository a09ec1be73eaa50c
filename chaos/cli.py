"""``eos-chaos``: kill everything around a job, and see whether anything is lost or doubled."""

from __future__ import annotations

import importlib.util
import signal
import sys
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated, Final, Never

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from chaos.anomalies import Kind
from chaos.campaign import Entry, Plan, of_pairs, of_seeds, of_singles, run_all
from chaos.faults import FAULTS
from chaos.job import load
from chaos.outcome import Outcome
from chaos.report import verdict_of, write_json, write_junit
from chaos.schedule import FEWEST_EPOCHS
from eos.errors import ConfigurationError, EosError

_FAILED: Final = 1
_WRONG: Final = 2
_SEED: Final = 1

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


@app.callback()
def describe() -> None:
    """Runs a Spark job against a real Pulsar broker, kills and cuts whatever it is made of, and
    checks that every record is readable exactly once.

    Needs Spark (`pip install 'eos[spark,chaos]'`), and Java with Maven, or Docker, for the broker.

    Exit codes: 0 nothing was wrong; 1 an anomaly was found, or a schedule broke off; 2 wrong
    options, or something is not installed.
    """


@app.command()
def run(
    schedules: Annotated[int, typer.Option(min=1, help="How many schedules, one seed each.")] = 3,
    seed: Annotated[
        int, typer.Option(min=0, help="Of the first one; the others follow it.")
    ] = _SEED,
    faults: Annotated[
        str, typer.Option(metavar="LIST", help="Draw from these only; see `eos-chaos faults`.")
    ] = "all",
    workload: Annotated[
        str, typer.Option(metavar="MODULE:FUNC", help="What to run; `stream` is eos's own sink.")
    ] = "chaos.workloads:stream",
    report: Annotated[
        Path, typer.Option(help="Folder of the report. What is there already is not run again.")
    ] = Path("build/chaos"),
    epochs: Annotated[
        int, typer.Option(min=FEWEST_EPOCHS, help="Micro-batches of each schedule.")
    ] = 24,
    singles: Annotated[
        bool, typer.Option("--singles", help="Instead of seeds: each fault alone.")
    ] = False,
    pairs: Annotated[
        bool, typer.Option("--pairs", help="Instead of seeds: each fault and then each other.")
    ] = False,
    keep: Annotated[
        str, typer.Option(metavar="N,N", help="Only these faults of the schedule, from 1.")
    ] = "",
    shard: Annotated[
        str, typer.Option(metavar="K/N", help="Only the K-th of N parts of the schedules.")
    ] = "1/1",
    hours: Annotated[
        float | None, typer.Option(min=0, help="Go on with further seeds for so long.")
    ] = None,
    shrink: Annotated[
        bool, typer.Option(help="Look for the fewest faults with which a schedule still fails.")
    ] = True,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Tell each thing.")] = False,
) -> None:
    """Run schedules of random faults, and write `report.html`, `report.json` and `junit.xml`.

    The same seed gives the same schedule. What fails is run again with fewer faults, and the
    report has the command that repeats it.
    """
    if importlib.util.find_spec("pyspark") is None:
        raise ConfigurationError(
            "pyspark is not installed.", hint="Try: pip install 'eos[spark,chaos]'"
        )
    load(workload)
    names = _faults(faults)
    part, parts = _shard(shard)
    entries: Iterator[Entry]
    if singles or pairs:
        entries = of_singles(names) if singles else of_pairs(names)
    else:
        end = seed + schedules if hours is None else sys.maxsize
        entries = of_seeds(range(seed, end), names, epochs)
    mine = islice(entries, part - 1, None, parts)
    plan = Plan(workload, _checked(mine, _numbers(keep)), report, _numbers(keep), shrink)
    until = None if hours is None else time.monotonic() + hours * 3600
    outcomes = _carry_out(plan, until, verbose=verbose)
    _conclude(outcomes, report)


def _conclude(outcomes: list[Outcome], report: Path) -> Never:
    from chaos.page import write_page  # matplotlib takes a second to load

    write_json(outcomes, report / "report.json")
    write_junit(outcomes, report / "junit.xml")
    write_page(outcomes, report / "report.html")
    verdict = verdict_of(outcomes)
    console = Console(soft_wrap=True, highlight=False)
    console.print(f"[{'green' if verdict.is_good else 'red'}]{escape(verdict.sentence())}[/]")
    for outcome in outcomes:
        if not outcome.is_good:
            console.print(f"run {outcome.name} again: {escape(outcome.again)}")
    console.print(f"report: {escape(str(report / 'report.html'))}")
    sys.exit(0 if verdict.is_good else _FAILED)


@app.command("faults")
def list_faults() -> None:
    """List the faults, with what each of them does."""
    table = Table("fault", "befalls", "what it does", box=None)
    for fault in FAULTS.values():
        table.add_row(fault.name, fault.part, fault.text)
    Console().print(table)


@app.command("anomalies")
def list_anomalies() -> None:
    """List what must never be seen, by number."""
    table = Table("", "anomaly", "definition", box=None)
    for kind in Kind:
        table.add_row(str(kind.number), kind.name.lower().replace("_", " "), kind.text)
    Console().print(table)


def _carry_out(plan: Plan, until: float | None, *, verbose: bool) -> list[Outcome]:
    console = Console(stderr=True, soft_wrap=True, highlight=False)
    outcomes: list[Outcome] = []
    began = time.monotonic()

    def tell(text: str) -> None:
        if verbose:
            console.print(f"[dim]{time.monotonic() - began:7.1f} s[/]  {escape(text)}")

    def on_outcome(outcome: Outcome) -> None:
        outcomes.append(outcome)
        state = "[green]good[/]" if outcome.is_good else "[red]FAILED[/]"
        names = ", ".join(found.name for found in outcome.anomalies) or outcome.failure
        fired = f"{len(outcome.fired)} of {len(outcome.faults)} faults hit"
        console.print(
            f"{len(outcomes):4}  {outcome.name}: {state} {escape(names)} "
            f"({outcome.epochs_done} epochs, {fired}, {outcome.seconds:.0f} s)"
        )

    run_all(plan, tell=tell, on_outcome=on_outcome, until=until)
    return outcomes


def _shard(text: str) -> tuple[int, int]:
    try:
        part, parts = (int(number) for number in text.split("/"))
    except ValueError:
        part, parts = 0, 0
    if not 1 <= part <= parts:
        raise ConfigurationError(
            f"--shard {text!r} is not K/N.", hint="Say 2/6 for the second of six parts."
        )
    return part, parts


def _faults(text: str) -> list[str]:
    if text == "all":
        return list(FAULTS)
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in FAULTS]
    if unknown or not names:
        raise ConfigurationError(
            f"--faults: there is no {', '.join(unknown) or 'name'}.",
            hint=f"Choose from {', '.join(FAULTS)}.",
        )
    return names


def _numbers(text: str) -> list[int] | None:
    if not text:
        return None
    numbers = [int(part) if part.strip().isdecimal() else 0 for part in text.split(",")]
    if min(numbers) < 1:
        raise ConfigurationError(f"--keep {text!r}: give the faults' numbers, as 1,3.")
    return numbers


def _checked(entries: Iterator[Entry], keep: list[int] | None) -> Iterator[Entry]:
    for entry in entries:
        if keep and max(keep) > len(entry.schedule.faults):
            raise ConfigurationError(
                f"--keep: {entry.name} has {len(entry.schedule.faults)} faults.",
                hint="Take the numbers from the report's command.",
            )
        yield entry


def main() -> None:
    """The console script; every error is one line."""
    # SIGTERM, as CI systems send it, cleans up like Ctrl-C; in the background of a shell the
    # latter is ignored.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.default_int_handler)
    sys.path.insert(0, str(Path.cwd()))  # a workload is mostly a module of the user's project
    try:
        app()
    except EosError as error:
        Console(stderr=True, soft_wrap=True, highlight=False).print(
            f"[red]eos-chaos:[/] {escape(str(error))}"
        )
        sys.exit(_WRONG if isinstance(error, ConfigurationError) else _FAILED)
