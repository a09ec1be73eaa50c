"""``eos chaos``: runs a job under faults, and checks for lost and duplicate records."""

from __future__ import annotations

import importlib.util
import signal
import sys
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final, Never

import typer
from rich.table import Table

from eos.chaos import _run_options as options
from eos.chaos._campaign import (
    Campaign,
    CampaignEntry,
    of_pairs,
    of_seeds,
    of_singles,
    of_soak,
    run_all,
)
from eos.chaos.checker.history import AnomalyKind
from eos.chaos.cluster import spark_rehearsal
from eos.chaos.faults import FAULTS
from eos.chaos.faults.conditions import CONDITIONS
from eos.chaos.job import load
from eos.chaos.report.machine import verdict_of, write_json, write_junit
from eos.chaos.report.outcome import ScheduleOutcome
from eos.chaos.workloads import OWN
from eos.cli.reports import escape, new_console
from eos.errors import ConfigurationError, EosError, pip_install

_FAILED: Final = 1
_WRONG: Final = 2
_ARCHIVE_FROM: Final = 10  # number of schedules for which an archive of Spark's classes saves time

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


@app.callback()
def describe() -> None:
    """Run a Spark job against a real Pulsar broker under faults, and check that every record is
    readable exactly once.

    Faults kill and stop processes, cut connections, and damage files and topics. Needs Spark
    (`pip install '.[spark,chaos]'` in a checkout), and for the broker Java with Maven, or Docker.

    Exit codes: 0 nothing is wrong; 1 an anomaly was found, or a schedule did not finish; 2 wrong
    options, or something is not installed.
    """


@app.command()
def run(
    schedules: options.Schedules = 3,
    seed: options.Seed = 1,
    faults: options.Faults = "all",
    always: options.Always = "",
    workload: options.Workload = "eos.chaos.workloads:stream",
    report: options.ReportFolder = Path("build/chaos"),
    epochs: options.Epochs = 24,
    brokers: options.Brokers = 1,
    pulsar_version: options.PulsarVersion = None,
    singles: options.Singles = False,
    pairs: options.Pairs = False,
    soak_minutes: options.SoakMinutes = None,
    soak_rows: options.SoakRows = None,
    keep: options.Keep = "",
    shard: options.Shard = "1/1",
    hours: options.Hours = None,
    shrink: options.Shrink = True,
    verbose: options.Verbose = False,
) -> None:
    """Run schedules of random faults, and write `report.html`, `report.json` and `junit.xml`.

    The same seed gives the same schedule. A failing schedule is run again with fewer faults; the
    report has the command to repeat it.
    """
    if importlib.util.find_spec("pyspark") is None:
        raise ConfigurationError(
            "pyspark is not installed.", hint=f"Run: {pip_install('spark', 'chaos')}"
        )
    load(workload)
    holding = options.parse_always(always, workload)
    names = options.wanted_faults(
        faults, workload, singles=singles, pairs=pairs, always=holding, brokers=brokers
    )
    if holding and (singles or pairs or soak_minutes is not None):
        raise ConfigurationError("--always only works with --schedules.", hint="Remove it.")
    if faults != "all" and soak_minutes is not None:
        raise ConfigurationError("--faults does not work with --soak-minutes.", hint="Remove it.")
    if soak_rows is not None and (soak_minutes is None or workload != OWN):
        raise ConfigurationError(f"--soak-rows needs --soak-minutes, and workload {OWN}.")
    part, parts = options.parse_shard(shard)
    entries: Iterator[CampaignEntry]
    if soak_minutes is not None:
        entries = of_soak(seed, soak_minutes, brokers, soak_rows)
    elif singles or pairs:
        entries = of_singles(names, brokers) if singles else of_pairs(names, brokers)
    else:
        end = seed + schedules if hours is None else sys.maxsize
        entries = of_seeds(range(seed, end), names, epochs, holding, brokers)
    numbers = options.parse_keep(keep)
    mine = _checked(islice(entries, part - 1, None, parts), numbers)
    # With --hours, seeds are endless. Otherwise all are checked before the first one runs.
    todo = mine if hours is not None else list(mine)
    if not isinstance(todo, list) or len(todo) >= _ARCHIVE_FROM:
        spark_rehearsal.create()
    campaign = Campaign(workload, todo, report, numbers, shrink, pulsar_version)
    until = None if hours is None else time.monotonic() + hours * 3600
    outcomes = _run_campaign(campaign, until, verbose=verbose)
    _conclude(outcomes, report)


def _conclude(outcomes: list[ScheduleOutcome], report: Path) -> Never:
    _write_reports(outcomes, report)
    verdict = verdict_of(outcomes)
    console = new_console(soft_wrap=True, highlight=False)
    console.print(f"[{'green' if verdict.is_good else 'red'}]{escape(verdict.sentence())}[/]")
    for outcome in outcomes:
        if not outcome.is_good:
            console.print(f"run {outcome.name} again: {escape(outcome.again)}")
            logs = report / "schedules" / f"{outcome.name}.*.log"
            console.print(f"logs of {outcome.name}: {escape(str(logs))}")
    console.print(f"report: {escape(str(report / 'report.html'))}")
    sys.exit(0 if verdict.is_good else _FAILED)


def _write_reports(outcomes: list[ScheduleOutcome], report: Path) -> None:
    from eos.chaos.report.page import write_page  # loading matplotlib takes a second

    write_json(outcomes, report / "report.json")
    write_junit(outcomes, report / "junit.xml")
    write_page(outcomes, report / "report.html")


@app.command("faults")
def list_faults() -> None:
    """List the faults and conditions."""
    table = Table("fault", "part", "what it does", box=None)
    for fault in FAULTS.values():
        table.add_row(fault.name, fault.part, fault.summary)
    for one in CONDITIONS.values():
        table.add_row(one.name, one.part, one.summary)
    new_console().print(table)


@app.command("anomalies")
def list_anomalies() -> None:
    """List the anomalies that are looked for."""
    table = Table("", "anomaly", "definition", box=None)
    for kind in AnomalyKind:
        table.add_row(str(kind.number), kind.name.lower().replace("_", " "), kind.text)
    new_console().print(table)


def _run_campaign(
    campaign: Campaign, until: float | None, *, verbose: bool
) -> list[ScheduleOutcome]:
    console = new_console(stderr=True, soft_wrap=True, highlight=False)
    outcomes: list[ScheduleOutcome] = []
    began = time.monotonic()

    def tell(text: str) -> None:
        if verbose:
            console.print(f"[dim]{time.monotonic() - began:7.1f} s[/]  {escape(text)}")

    def on_outcome(outcome: ScheduleOutcome, is_stored: bool) -> None:
        outcomes.append(outcome)
        state = "[green]good[/]" if outcome.is_good else "[red]FAILED[/]"
        fired = f"{len(outcome.fired)} of {outcome.due} faults hit"
        if outcome.met:
            fired += f", {len(outcome.held)} of {len(outcome.met)} conditions held"
        earlier = ", in an earlier run" if is_stored else ""
        console.print(
            f"{_progress(outcomes, campaign)}  {outcome.name}: {state} {escape(outcome.complaint)} "
            f"({outcome.epochs_done} epochs, {fired}, {outcome.seconds:.0f} s{earlier})"
        )

    try:
        run_all(campaign, tell=tell, on_outcome=on_outcome, until=until)
    except BaseException:
        if outcomes:  # such as a new broker that does not start, or Ctrl-C
            _write_reports(outcomes, campaign.report)
        raise
    return outcomes


def _progress(outcomes: list[ScheduleOutcome], campaign: Campaign) -> str:
    done = len(outcomes)
    if not isinstance(campaign.entries, list):
        return f"{done:4}"
    left = len(campaign.entries) - done
    minutes = left * sum(outcome.seconds for outcome in outcomes) / done / 60
    return f"{done:4} of {len(campaign.entries)}" + (f", {minutes:.0f} min left" if left else "")


def _checked(entries: Iterator[CampaignEntry], keep: list[int] | None) -> Iterator[CampaignEntry]:
    for entry in entries:
        if keep and max(keep) > len(entry.schedule.faults):
            raise ConfigurationError(
                f"--keep: {entry.name} has only {len(entry.schedule.faults)} faults.",
                hint="Use the command in the report.",
            )
        yield entry


def main() -> None:
    """Run the command line; every error is one line."""
    # SIGTERM, sent by CI systems, cleans up like Ctrl-C. In the background of a shell, SIGINT would
    # be ignored.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.default_int_handler)
    sys.path.insert(0, str(Path.cwd()))  # a workload is usually a module of the user's project
    try:
        app(prog_name=sys.argv[0])
    except EosError as error:
        new_console(stderr=True, soft_wrap=True, highlight=False).print(
            f"[red]{sys.argv[0]}:[/] "
            + escape("\n".join([str(error), *getattr(error, "__notes__", ())]))  # a server's log
        )
        sys.exit(_WRONG if isinstance(error, ConfigurationError) else _FAILED)
