"""``python -m examples.flights``: the main job on real input, under kills, two ways."""

from __future__ import annotations

import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, Final, Literal, Never

import typer

from eos.errors import EosError
from eos.standalone import PulsarStandalone
from examples.flights.console import Teller
from examples.flights.data import prepare
from examples.flights.page import write_page
from examples.flights.picture import draw
from examples.flights.report import NAMES, conclude, evidence, lines_of
from examples.flights.run import DemoRun, Way
from examples.flights.story import Story, StoryFailed

_FILES: Final = ("flights.png", "flights.svg", "flights.html", "today.log", "eos.log")
_DATA: Final = "data"
_EXIT_FAILED: Final = 4

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


class _StopRequested(BaseException):
    """Ctrl-C or SIGTERM; not an Exception, so that nothing on the way takes it for a failure."""


@app.command()
def main(
    rows: Annotated[
        int | None,
        typer.Option(min=50_000, help="Only the first so many flights. Fewer, and no kill hits."),
    ] = None,
    output: Annotated[
        Path, typer.Option(help="Folder for the picture, the page and the drivers' logs.")
    ] = Path("build/demo"),
    only: Annotated[
        Literal["eos"] | None, typer.Option(help="Leave out the way it is written today.")
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep topics, commit log and checkpoints, in data/.")
    ] = False,
) -> None:
    """Write 336,776 flights to a 4-partition topic with Spark Structured Streaming, and kill.

    First as such jobs are written today, then with eos, under the same kills: an executor a third
    of the way, the driver at two thirds. A plain pulsar-client reader counts what came of it.

    Exit codes: 0 eos wrote every flight exactly once, and the kills took effect; 1 it did not;
    3 a kill had no effect, so nothing was shown; 4 the demo could not run to its end; 130 Ctrl-C.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _on_signal)
    started = time.monotonic()
    teller = Teller()
    ways: list[Way] = ["eos"] if only else ["today", "eos"]
    try:
        with _folder(output, keep=keep) as folder:
            runs = _run(teller, ways, folder, output, rows=rows, keep=keep)
            code = _show(teller, runs, output)
    except _StopRequested:
        teller.tell("stopped; nothing is left behind")
        raise typer.Exit(130) from None
    except (StoryFailed, EosError) as error:
        teller.fail(f"The demo failed: {error}")
        raise typer.Exit(_EXIT_FAILED) from None
    teller.say(f"The demo took {time.monotonic() - started:.0f} s.")
    raise typer.Exit(code)


def _run(
    teller: Teller, ways: list[Way], folder: Path, output: Path, *, rows: int | None, keep: bool
) -> list[DemoRun]:
    teller.tell("cutting the flights into files, starting a Pulsar broker of our own")
    flights = prepare(folder / "flights", rows=rows)
    runs = []
    with PulsarStandalone(folder / "broker" if keep else None) as broker:
        for way in ways:
            with teller.chapter(NAMES[way], flights.epochs) as progress:
                story = Story(broker, flights, folder, output, tell=teller.tell, progress=progress)
                runs.append(story.run(way))
    return runs


def _show(teller: Teller, runs: list[DemoRun], output: Path) -> int:
    """Table, picture and page; the exit code."""
    lines, conclusion, proof = lines_of(runs), conclude(runs), evidence(runs[-1])
    teller.table(lines, [run.way for run in runs])
    teller.log_says(proof)
    png, svg, page = (output / name for name in _FILES[:3])
    draw(runs, png, svg)
    write_page(runs, lines, conclusion, proof, svg, page)
    svg.unlink()
    teller.say(f"picture: {png}\npage:    {page}")
    (teller.fail if conclusion.exit_code else teller.praise)(conclusion.sentence)
    return conclusion.exit_code


@contextmanager
def _folder(output: Path, *, keep: bool) -> Iterator[Path]:
    """Where the runs keep their data. Of ``output`` only what a demo made is ever removed."""
    output.mkdir(parents=True, exist_ok=True)
    for name in _FILES:
        (output / name).unlink(missing_ok=True)
    if not keep:
        # What a dying JVM still writes must not turn the end into a failure.
        with tempfile.TemporaryDirectory(prefix="eos-demo-", ignore_cleanup_errors=True) as name:
            yield Path(name)
        return
    folder = output / _DATA
    if folder.exists():
        raise typer.BadParameter(
            f"{folder} is there already: move or remove it", param_hint="--keep"
        )
    folder.mkdir()
    yield folder.absolute()
    for way in ("today", "eos"):
        shutil.rmtree(folder / f"{way}-scratch", ignore_errors=True)


def _on_signal(number: int, frame: FrameType | None) -> Never:
    del number, frame
    # A second Ctrl-C must not break off the cleaning up.
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    raise _StopRequested


if __name__ == "__main__":
    app()
