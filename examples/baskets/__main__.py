"""``python -m examples.baskets``: from topic to topic and table, under kills, end to end."""

from __future__ import annotations

import signal
import tempfile
import time
from pathlib import Path
from types import FrameType
from typing import Annotated, Final, Never

import typer
from rich.table import Table

from eos.errors import EosError
from eos.standalone import PulsarCluster
from examples.baskets.data import Year, read_year
from examples.baskets.judge import BasketVerdict, judge
from examples.baskets.picture import draw_baskets
from examples.baskets.readers import counts_in_table, counts_in_topic, sent_baskets
from examples.baskets.report import conclude_baskets, figures
from examples.baskets.run import BasketsRun
from examples.baskets.screen import Screen
from examples.baskets.story import DELAY, BasketsStory, Places
from examples.flights.console import Teller
from examples.flights.story import StoryFailed

_FILES: Final = ("e2e.png", "baskets.log", "feed.log")
_EXIT_FAILED: Final = 4
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


class _Stopped(BaseException):
    """Ctrl-C or SIGTERM; not an Exception, so that nothing on the way takes it for a failure."""


@app.command()
def main(
    rows: Annotated[
        int | None,
        typer.Option(min=60_000, help="Only the first so many baskets. Fewer, and no kill hits."),
    ] = None,
    output: Annotated[
        Path, typer.Option(help="Folder for the picture and the programs' logs.")
    ] = Path("build/demo-e2e"),
) -> None:
    """Count 155,848 baskets by shop and day with Spark, from a topic to a topic and a table.

    A producer sends them in transactions, some twice, and aborts others. A cluster of two brokers
    and two bookies holds the topics. An executor, the driver and the broker of the output topic are
    killed on the way. Plain readers of topic and table count what came of it.

    Exit codes: 0 every window once in both, with the right count; 1 it is not; 3 a kill did not
    happen, so nothing was shown; 4 the demo could not run to its end; 130 Ctrl-C.
    """
    for number in _SIGNALS:
        signal.signal(number, _on_signal)
    started = time.monotonic()
    teller = Teller()
    output.mkdir(parents=True, exist_ok=True)
    for name in _FILES:
        (output / name).unlink(missing_ok=True)
    try:
        # What a dying JVM still writes must not turn the end into a failure.
        with tempfile.TemporaryDirectory(prefix="eos-demo-", ignore_cleanup_errors=True) as folder:
            run, verdict = _run(teller, rows, Places(Path(folder), output.absolute()))
        code = _show(teller, run, verdict, output / _FILES[0])
    except _Stopped:
        teller.tell("stopped; nothing is left behind")
        raise typer.Exit(130) from None
    except (StoryFailed, TimeoutError, EosError) as error:
        teller.fail(f"The demo failed: {error}")
        raise typer.Exit(_EXIT_FAILED) from None
    teller.say(f"The demo took {time.monotonic() - started:.0f} s.")
    raise typer.Exit(code)


def _run(teller: Teller, rows: int | None, places: Places) -> tuple[BasketsRun, BasketVerdict]:
    teller.tell("reading the baskets, starting a cluster of our own: two brokers, two bookies")
    year = read_year(rows)
    screen = Screen(teller.console)
    with PulsarCluster(brokers=2, bookies=2) as cluster:
        story = BasketsStory(cluster, year, rows, places, tell=teller.tell, show=screen.show)
        with screen.on():
            run = story.play()
        teller.tell("plain readers read both topics and the table")
        return run, _judge(cluster, year, story, places)


def _judge(
    cluster: PulsarCluster, year: Year, story: BasketsStory, places: Places
) -> BasketVerdict:
    return judge(
        year.baskets,
        year.last(DELAY),
        sent_baskets(cluster.service_url, story.source.url),
        counts_in_topic(cluster.service_url, story.target.url),
        counts_in_table(places.table),
    )


def _show(teller: Teller, run: BasketsRun, verdict: BasketVerdict, png: Path) -> int:
    """Table and picture; the exit code."""
    table = Table("baskets, from topic to topic and table, under kills")
    table.add_column("what came of it", justify="right")
    for line in figures(run, verdict):
        table.add_row(*line)
    teller.console.print()
    teller.console.print(table)
    draw_baskets(run, verdict, png)
    teller.say(f"picture: {png}")
    conclusion = conclude_baskets(run, verdict)
    (teller.fail if conclusion.exit_code else teller.praise)(conclusion.sentence)
    return conclusion.exit_code


def _on_signal(number: int, frame: FrameType | None) -> Never:
    del number, frame
    # A second Ctrl-C must not break off the cleaning up.
    for ignored in _SIGNALS:
        signal.signal(ignored, signal.SIG_IGN)
    raise _Stopped


if __name__ == "__main__":
    app()
