"""The table, and whether the demo has shown what it claims."""

from __future__ import annotations

from dataclasses import dataclass

from rich.table import Table

from examples.flights.story import Run

CAPTION = (
    "missing, duplicates: what a fresh reader finds when all is quiet. "
    "partly visible: epochs of which a watching reader had rows before they were complete."
)
NAMES = {"today": "foreachPartition + pulsar-client", "eos": "eos PulsarSink"}


@dataclass(frozen=True)
class Line:
    """One row of the table. ``seconds``: from the first epoch's begin to the last one's end."""

    name: str
    rows_in: int
    rows_out: int
    duplicates: int
    missing: int
    partly_visible: int
    seconds: float


def line_of(run: Run) -> Line:
    """The figures of one run."""
    verdict = run.verdict
    return Line(
        name=NAMES[run.way],
        rows_in=verdict.rows_in,
        rows_out=verdict.rows_out,
        duplicates=sum(verdict.duplicates.values()),
        missing=len(verdict.missing),
        partly_visible=len(run.early_epochs),
        seconds=run.ended_at - run.began_at,
    )


def table_of(lines: list[Line], epochs: int) -> Table:
    """The table for the terminal."""
    table = Table(title="The same job, under the same kills", caption=CAPTION)
    table.add_column("written with")
    for name in ("rows in", "rows out", "duplicates", "missing", "partly visible", "seconds"):
        table.add_column(name, justify="right")
    for line in lines:
        table.add_row(
            line.name,
            f"{line.rows_in:,}",
            f"{line.rows_out:,}",
            f"{line.duplicates:,}",
            f"{line.missing:,}",
            f"{line.partly_visible} of {epochs} epochs",
            f"{line.seconds:.0f}",
        )
    return table


def failures(eos: Run) -> list[str]:
    """Why the demo has failed; empty when it has shown exactly-once under real kills."""
    verdict = eos.verdict
    found = [
        (bool(verdict.duplicates), f"{len(verdict.duplicates)} flights are there more than once"),
        (bool(verdict.missing), f"{len(verdict.missing)} flights are missing"),
        (bool(verdict.invented), f"{len(verdict.invented)} messages were never written"),
        (bool(verdict.torn), f"epochs {', '.join(verdict.torn)} are there in part"),
        (bool(eos.early_epochs), f"epochs {eos.early_epochs} were readable too early"),
    ]
    return [text for is_so, text in found if is_so] + unproved(eos)


def unproved(eos: Run) -> list[str]:
    """Kills that did not have the effect that they were made for: then nothing was shown."""
    aborted = [r for r in eos.records if r.state == "ABORTED"]
    states = {kill.what: [] for kill in eos.kills}
    for kill in eos.kills:
        states[kill.what] = [r for r in eos.records if r.epoch == str(kill.epoch)]
    found = []
    if not any(r in aborted for r in states.get("executor", [])):
        found.append("no transaction was aborted by the executor's death")
    ends = {r.state.value: r.run_id for r in states.get("driver", [])}
    if "PREPARED" not in ends or ends.get("PREPARED") == ends.get("COMMITTED"):
        found.append("the killed driver's transaction was not finished by the next one")
    return found
