"""``python -m eos.chaos.soak``: the command, its table, its picture."""

from __future__ import annotations

import json
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from eos.chaos.observers import resources
from eos.chaos.soak import _gauges as gauges
from eos.chaos.soak import _verdict as verdict
from eos.chaos.soak._picture import draw
from eos.chaos.soak._plan import SoakPlan
from eos.chaos.soak._run import SoakFailed, SoakResult, soak
from eos.errors import EosError

_EXIT_WRONG: Final = 1
_EXIT_GROWN: Final = 3
_EXIT_FAILED: Final = 4

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    rows: Annotated[int, typer.Option(min=100_000, help="Of the input topic.")] = 100_000_000,
    minutes: Annotated[
        float,
        typer.Option(min=1, help="In so many they are sent; less than thirty prove no bound."),
    ] = 60,
    seed: Annotated[int, typer.Option(min=0, help="Of the order of the faults.")] = 1,
    out: Annotated[Path, typer.Option(help="Folder of soak.json and soak.png.")] = Path(
        "build/soak"
    ),
) -> None:
    """Count steady rows by second and key with Spark, from a topic to a topic and a table.

    Two brokers, two bookies; every four minutes a fault: of the cluster, of an executor, of the
    Python workers. Plain readers compare both outputs with what had to come. Memory and open files
    of driver and workers, commit log, checkpoint, receipt topic and input topic must not grow.

    Exit codes: 0 all of that holds; 1 an output is wrong; 3 something has grown, or nobody can tell
    (no fault hit, the driver had a second life, nobody looked for minutes); 4 it could not run to
    its end.
    """
    console = Console(highlight=False, soft_wrap=True)
    began = time.monotonic()

    def tell(text: str) -> None:
        console.print(f"[dim]{time.monotonic() - began:7.0f} s[/]  {escape(text)}")

    out.mkdir(parents=True, exist_ok=True)
    # What a dying JVM still writes must not turn the end into a failure.
    with tempfile.TemporaryDirectory(prefix="eos-soak-", ignore_cleanup_errors=True) as folder:
        try:
            result = soak(SoakPlan(rows, minutes), seed, Path(folder), tell)
        except (SoakFailed, EosError, RuntimeError, TimeoutError) as error:
            console.print(f"[bold red]It could not run to its end: {escape(str(error))}[/]")
            _keep_logs(Path(folder), out)
            raise typer.Exit(_EXIT_FAILED) from None
        _keep_logs(Path(folder), out)
    (out / "soak.json").write_text(json.dumps(asdict(result), indent=1) + "\n")
    draw(result, out / "soak.png")
    console.print(_table(result))
    console.print(f"picture: {out / 'soak.png'}")
    raise typer.Exit(_conclude(result, console))


def _keep_logs(folder: Path, out: Path) -> None:
    for log in folder.glob("*.log"):
        (out / log.name).write_bytes(log.read_bytes())


def _table(result: SoakResult) -> Table:
    table = Table("soak", Column("", justify="right"))
    hits = sum(bool(one.hit) for one in result.happened)
    table.add_row("rows sent, and counted in topic and table", _rows(result))
    table.add_row("windows, and rows in topic and table", _windows(result))
    table.add_row("missing, extra in the topic", f"{result.topic.missing}, {result.topic.extra}")
    table.add_row("missing, extra in the table", f"{result.table.missing}, {result.table.extra}")
    table.add_row("seconds, epochs", f"{result.seconds:,.0f}, {result.epochs:,}")
    table.add_row("faults that hit", f"{hits} of {len(result.happened)}")
    table.add_row("lives of the driver", str(result.lives))
    for name in resources.CHECKED:
        values = [getattr(sample, name) for sample in result.samples]
        table.add_row(f"{name}, at 1/4 and at the end", _growth(values))
    for name in gauges.BOUNDED:
        values = [getattr(reading, name) for reading in result.readings]
        table.add_row(f"{name}, at 1/4 and at the end", _growth(values))
    return table


def _rows(result: SoakResult) -> str:
    return f"{result.plan.rows:,}, {result.topic.counted:,}, {result.table.counted:,}"


def _windows(result: SoakResult) -> str:
    return f"{result.windows:,}, {result.topic.rows:,}, {result.table.rows:,}"


def _growth(values: list[float]) -> str:
    return f"{values[len(values) // 4]:,.0f}, {values[-1]:,.0f}" if values else "none"


def _conclude(result: SoakResult, console: Console) -> int:
    if not result.is_exact:
        console.print("[bold red]WRONG: an output is not what the input makes.[/]")
        return _EXIT_WRONG
    if result.seconds < gauges.LONG_S:
        console.print("[bold green]Each window once in both outputs.[/] Too short to tell growth.")
        return 0
    if grown := verdict.grown(result):
        what = ", ".join(f"{name} {ratio:.2f} times" for name, ratio in grown.items())
        console.print(f"[bold red]Exact, but grown: {what}.[/]")
        return _EXIT_GROWN
    if doubts := verdict.doubts(result):
        console.print(f"[bold red]Exact, but nobody can tell growth: {'; '.join(doubts)}.[/]")
        return _EXIT_GROWN
    console.print("[bold green]Each window once in both outputs, and nothing has grown.[/]")
    return 0


if __name__ == "__main__":
    app()
