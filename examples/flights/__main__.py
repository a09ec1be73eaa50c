"""``python -m examples.flights``: the main job on real input, under kills, two ways."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from eos.standalone import PulsarStandalone
from examples.flights.data import Flights, prepare
from examples.flights.job import Way
from examples.flights.page import write_page
from examples.flights.picture import draw
from examples.flights.report import NAMES, failures, line_of, table_of
from examples.flights.story import Run, Story

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    rows: Annotated[
        int | None, typer.Option(min=1000, help="Only the first so many flights, for a quick look.")
    ] = None,
    output: Annotated[
        Path, typer.Option(help="Folder for the picture, the page and the drivers' logs.")
    ] = Path("build/demo"),
    only: Annotated[
        Literal["eos"] | None, typer.Option(help="Leave out the way it is written today.")
    ] = None,
) -> None:
    """Write 336,776 flights to a 4-partition topic with Spark Structured Streaming, and kill.

    First as such jobs are written today, then with eos, under the same kills: an executor a third
    of the way, the driver at two thirds. A plain pulsar-client reader counts what came of it.

    Exit codes: 0 eos wrote every row exactly once, and the kills took effect; 1 otherwise.
    """
    console = Console()
    started = time.monotonic()
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    ways: list[Way] = ["eos"] if only else ["today", "eos"]
    with tempfile.TemporaryDirectory(prefix="eos-demo-") as scratch:
        runs = _run(console, ways, Path(scratch), output, rows)
    lines, eos = [line_of(run) for run in runs], runs[-1]
    problems = failures(eos)
    draw(runs, output / "flights.png")
    write_page(lines, problems, output / "flights.png", output / "flights.html")
    console.print(table_of(lines, eos.flights.epochs))
    console.print(f"picture: {output / 'flights.png'}   page: {output / 'flights.html'}")
    if problems:
        console.print(f"[bold red]failed:[/] {'; '.join(problems)}")
        raise typer.Exit(1)
    took_s = time.monotonic() - started
    console.print(f"[bold]eos: every row exactly once.[/] The demo took {took_s:.0f} s.")


def _run(
    console: Console, ways: list[Way], scratch: Path, output: Path, rows: int | None
) -> list[Run]:
    console.print("preparing the flights and a Pulsar broker of our own")
    flights = prepare(scratch / "flights", rows=rows)
    runs = []
    with PulsarStandalone() as broker:
        for way in ways:
            console.rule(NAMES[way], align="left")
            runs.append(_run_one(console, way, broker, flights, scratch, output))
    return runs


def _run_one(
    console: Console,
    way: Way,
    broker: PulsarStandalone,
    flights: Flights,
    scratch: Path,
    output: Path,
) -> Run:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("epochs"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=not console.is_terminal) as bar:
        task = bar.add_task("writing", total=flights.epochs)

        def progress(done: int) -> None:
            bar.update(task, completed=done)
            if not console.is_terminal:
                console.print(f"epoch {done} of {flights.epochs}")

        story = Story(broker, flights, scratch, output, tell=console.print, progress=progress)
        return story.run(way)


if __name__ == "__main__":
    app()
