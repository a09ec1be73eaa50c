"""``python -m examples.baskets``: from topic to topic and table, under kills, end to end."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import typer

from eos.testing import PulsarCluster
from examples._demo.demo_command import Conclusion, Terminal, prepare_output, publish, run_demo
from examples._demo.epoch_chart import draw
from examples.baskets.basket_year import Year, read_year
from examples.baskets.baskets_report import chart_of_baskets, report_on_baskets
from examples.baskets.baskets_run import BasketsRun
from examples.baskets.cluster_scenario import DELAY, ClusterScenario, Folders
from examples.baskets.live_view import LiveView
from examples.baskets.window_verdict import (
    BasketVerdict,
    compare,
    counts_in_table,
    counts_in_topic,
    sent_baskets,
)

_NAME: Final = "e2e"
_FILES: Final = ("e2e.png", "e2e.svg", "e2e.html", "baskets.log", "producer.log")

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    rows: Annotated[
        int | None,
        typer.Option(min=60_000, help="Only the first baskets. With fewer, no kill has an effect."),
    ] = None,
    output: Annotated[
        Path, typer.Option(help="Folder for the picture, the page and the programs' logs.")
    ] = Path("build/demo-e2e"),
) -> None:
    """Count 155,848 baskets by store and day with Spark, from a topic to a topic and a table.

    A producer sends them in transactions, some twice, and aborts others. A cluster of two brokers
    and two bookies holds the topics. An executor, the driver and the broker of the output topic are
    killed meanwhile. Plain readers of topic and table count the result.

    Exit codes: 0 every window once in both, with the right count; 1 it is not; 3 a kill did not
    happen, so nothing was shown; 4 the demo failed; 130 Ctrl-C.
    """

    def demo(terminal: Terminal) -> Conclusion:
        prepare_output(output, _FILES)
        # A dying JVM may still write there: that must not turn the end into a failure.
        with tempfile.TemporaryDirectory(prefix="eos-demo-", ignore_cleanup_errors=True) as folder:
            run, verdict = _run(terminal, rows, Folders(Path(folder), output.absolute()))
        report = report_on_baskets(run, verdict)
        picture = partial(draw, [chart_of_baskets(run, verdict)])
        return publish(terminal, report, picture, output, _NAME)

    run_demo(demo)


def _run(
    terminal: Terminal, rows: int | None, folders: Folders
) -> tuple[BasketsRun, BasketVerdict]:
    terminal.log("reading the baskets, starting a cluster of two brokers and two bookies")
    year = read_year(rows)
    view = LiveView(terminal.console)
    with PulsarCluster(brokers=2, bookies=2) as cluster:
        scenario = ClusterScenario(cluster, year, rows, folders, log=terminal.log, show=view.show)
        with view.shown():
            run = scenario.play()
        terminal.log("plain readers read both topics and the table")
        return run, _compare(cluster, year, scenario, folders)


def _compare(
    cluster: PulsarCluster, year: Year, scenario: ClusterScenario, folders: Folders
) -> BasketVerdict:
    return compare(
        year.baskets,
        year.last(DELAY),
        sent_baskets(cluster.service_url, scenario.source.url),
        counts_in_topic(cluster.service_url, scenario.target.url),
        counts_in_table(folders.table),
    )


if __name__ == "__main__":
    app()
