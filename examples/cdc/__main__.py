"""``python -m examples.cdc``: changes of a shop in three outputs at once, under kills."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Final

import typer

from examples._demo.demo_command import Conclusion, Terminal, prepare_output, publish, run_demo
from examples.cdc.cdc_run import draw, play, report_on

_NAME: Final = "cdc"
_FILES: Final = ("cdc.png", "cdc.svg", "cdc.html", "driver.log")

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    rate: Annotated[int, typer.Option(min=1, help="Changes per second.")] = 100,
    output: Annotated[
        Path,
        typer.Option(file_okay=False, help="Folder for the picture, the page and the log."),
    ] = Path("build/demo-cdc"),
) -> None:
    """Follow the changes of a shop's customers with Spark, into three outputs at once.

    The changes are in Debezium's format, with updates and deletes. Each epoch is written to a Delta
    table and to PostgreSQL by upsert, and to a compacted topic: to all three, or to none.
    Meanwhile an executor, the database, the driver and the broker are killed. At the end plain
    readers compare the outputs with the shop.

    Exit codes: 0 all outputs have the shop's rows; 1 they have not; 3 no kill hit an epoch; 4 the
    demo failed; 130 Ctrl-C.
    """

    def demo(terminal: Terminal) -> Conclusion:
        prepare_output(output, _FILES)
        run = play(rate, output / "driver.log", terminal.log)
        return publish(terminal, report_on(run), partial(draw, run), output, _NAME)

    run_demo(demo)


if __name__ == "__main__":
    app()
