"""``python -m examples.state``: a service counts flights by route in Pulsar, under kills."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Final

import typer

from examples._demo.demo_command import Conclusion, Terminal, prepare_output, publish, run_demo
from examples.state.state_run import draw, play, report_on

_NAME: Final = "state"
_FILES: Final = ("state.png", "state.svg", "state.html", "services.log")

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    rows: Annotated[int | None, typer.Option(min=40_000, help="Only the first flights.")] = None,
    kills: Annotated[int, typer.Option(min=1, help="Kills of each service.")] = 10,
    output: Annotated[
        Path,
        typer.Option(file_okay=False, help="Folder for the picture, the page and the log."),
    ] = Path("build/demo-state"),
) -> None:
    """Count 336,776 flights by route in two services without Spark, each killed ten times.

    Both keep their totals in a compacted topic, and send each new total to another topic. One uses
    `pulsar-client`: it sends totals and state, then acknowledges. The other one uses
    `eos.KeyedState`: state, totals and acknowledgements are committed together. After each kill
    the service starts again, and restores its state; the topic is compacted meanwhile. At the end a
    plain `pulsar-client` reads everything.

    Exit codes: 0 the totals of eos are those of the input, and each was sent once; 1 they are not;
    3 a kill hit nothing; 4 the demo failed; 130 Ctrl-C.
    """

    def demo(terminal: Terminal) -> Conclusion:
        prepare_output(output, _FILES)
        run = play(rows, kills, output / "services.log", terminal.log)
        return publish(terminal, report_on(run), partial(draw, run), output, _NAME)

    run_demo(demo)


if __name__ == "__main__":
    app()
