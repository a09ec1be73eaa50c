"""``python -m examples.flights``: one job on real input, under kills, in two ways."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Final, Literal

import typer

from eos.testing import PulsarStandalone
from examples._demo.demo_command import Conclusion, Terminal, prepare_output, publish, run_demo
from examples._demo.epoch_chart import draw
from examples.flights.flight_files import prepare
from examples.flights.flights_report import NAMES, chart_of, report_on
from examples.flights.flights_run import FlightsRun, Way
from examples.flights.kill_scenario import KillScenario

_NAME: Final = "flights"
_FILES: Final = ("flights.png", "flights.svg", "flights.html", "pulsar_client.log", "eos.log")
_DATA: Final = "data"

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    rows: Annotated[
        int | None,
        typer.Option(min=50_000, help="Only the first flights. With fewer, no kill has an effect."),
    ] = None,
    output: Annotated[
        Path, typer.Option(help="Folder for the picture, the page and the drivers' logs.")
    ] = Path("build/demo"),
    only: Annotated[
        Literal["eos"] | None, typer.Option(help="Skip the run with pulsar-client.")
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep topics, commit log and checkpoints, in data/.")
    ] = False,
) -> None:
    """Write 336,776 flights to a 4-partition topic with Spark Structured Streaming, under kills.

    First in the usual way, with pulsar-client, then with eos. Both runs lose an executor after a
    third of the epochs and the driver after two thirds. A plain pulsar-client reader counts the
    result.

    Exit codes: 0 eos wrote every flight exactly once, and the kills had an effect; 1 it did not; 3
    a kill had no effect, so nothing was shown; 4 the demo failed; 130 Ctrl-C.
    """

    def demo(terminal: Terminal) -> Conclusion:
        ways: list[Way] = ["eos"] if only else ["pulsar_client", "eos"]
        prepare_output(output, _FILES)
        with _folder(output, keep=keep) as folder:
            runs = _run(terminal, ways, folder, output, rows=rows, keep=keep)
            picture = partial(draw, list(map(chart_of, runs)))
            return publish(terminal, report_on(runs), picture, output, _NAME)

    run_demo(demo)


def _run(
    terminal: Terminal, ways: list[Way], folder: Path, output: Path, *, rows: int | None, keep: bool
) -> list[FlightsRun]:
    terminal.log("writing the input files, starting a Pulsar broker")
    flights = prepare(folder / "flights", rows=rows)
    runs = []
    with PulsarStandalone(folder / "broker" if keep else None) as broker:
        for way in ways:
            with terminal.section(NAMES[way], flights.epochs) as progress:
                scenario = KillScenario(
                    broker, flights, folder, output, log=terminal.log, progress=progress
                )
                runs.append(scenario.run(way))
    return runs


@contextmanager
def _folder(output: Path, *, keep: bool) -> Iterator[Path]:
    if not keep:
        # A dying JVM may still write there: that must not turn the end into a failure.
        with tempfile.TemporaryDirectory(prefix="eos-demo-", ignore_cleanup_errors=True) as name:
            yield Path(name)
        return
    folder = output / _DATA
    if folder.exists():
        raise typer.BadParameter(f"{folder} already exists: move or remove it", param_hint="--keep")
    folder.mkdir()
    yield folder.absolute()
    for way in NAMES:
        shutil.rmtree(folder / f"{way}-scratch", ignore_errors=True)


if __name__ == "__main__":
    app()
