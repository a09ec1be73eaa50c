"""``python -m examples.past``: a topic's past in S3 and in a table, and SQL over all of it."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import typer

from examples._demo.demo_command import Conclusion, Terminal, prepare_output, publish, run_demo
from examples.past.past_report import draw, report_on
from examples.past.past_run import play, split

_NAME: Final = "past"
_FILES: Final = ("past.png", "past.svg", "past.html", "spark.log")

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    rows: Annotated[
        int | None,
        typer.Option(min=60_000, help="Only the first flights. With fewer, no file is skipped."),
    ] = None,
    output: Annotated[
        Path,
        typer.Option(file_okay=False, help="Folder for the picture, the page and Spark's log."),
    ] = Path("build/demo-past"),
) -> None:
    """Ask one SQL query over the past of a topic and over what is still in it, in two ways.

    336,776 flights of a year go to a topic, and the broker offloads the old ones to an S3 server.
    Spark asks a query over the topic, through the broker. Then `eos catalog archive` copies all but
    the last week into a Delta table, and the broker deletes them. Spark asks the same query by
    `eos.history`, which needs the broker for the last week only, and skips files of the table.
    deltalake and pulsar-client count all flights, too.

    Exit codes: 0 all counts and sums are those of the input; 1 they are not; 3 nothing was deleted
    from the topic, or no file was skipped; 4 the demo failed; 130 Ctrl-C.
    """

    def demo(terminal: Terminal) -> Conclusion:
        prepare_output(output, _FILES)
        # A dying JVM may still write there: that must not turn the end into a failure.
        with tempfile.TemporaryDirectory(prefix="eos-demo-", ignore_cleanup_errors=True) as folder:
            run = play(split(rows), Path(folder), output / "spark.log", terminal.log)
        return publish(terminal, report_on(run), partial(draw, run), output, _NAME)

    run_demo(demo)


if __name__ == "__main__":
    app()
