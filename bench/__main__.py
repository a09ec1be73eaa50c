"""``make bench``: what eos costs, beside what else could be used, in one run on one machine."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.table import Table

from bench import (
    cold,
    flights,
    growth,
    hot_path,
    idle,
    latency,
    page_cache,
    pulsar_spark,
    throughput,
)
from bench.environment import Setting, setting
from bench.plots import draw
from bench.results import base_rates, machine, markdown, put_between, split_at, summary, targets
from bench.rows import RowShape

_MARKER: Final = "bench"

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def run(
    quick: Annotated[bool, typer.Option(help="The main figures only, in some minutes.")] = False,
    out: Annotated[Path, typer.Option(help="Folder of the results.")] = Path("build/bench"),
    readme: Annotated[
        Path | None, typer.Option(help="Put the tables between the marks in this file.")
    ] = None,
) -> None:
    """Measure, and leave results.json, results.md and plots."""
    console = Console(highlight=False, soft_wrap=True)
    began = time.monotonic()
    if readme is not None:
        split_at(readme, _MARKER)  # a run of many minutes is not to end with that error

    def tell(text: str) -> None:
        console.print(f"[dim]{time.monotonic() - began:6.0f} s[/]  {text}")

    logging.getLogger("eos").setLevel(logging.ERROR)
    tell("a full page cache, a broker, Spark")
    with setting(pulsar_spark.built_jars(tell)) as stage:
        found = _measure(stage, tell, quick=quick)
    found["took_s"] = round(time.monotonic() - began)
    results = {**summary(found), "base": base_rates(found["throughput"]), **found}
    out.mkdir(parents=True, exist_ok=True)
    (out / "results.json").write_text(json.dumps(results, indent=2) + "\n")
    (out / "results.md").write_text(markdown(results))
    plots = draw(results, out)
    if readme is not None:
        put_between(readme, markdown(results), _MARKER)
    _show(results, console)
    console.print(f"{out}/results.json, results.md, {', '.join(plot.name for plot in plots)}")


def _measure(stage: Setting, tell: Callable[[str], None], *, quick: bool) -> dict[str, Any]:
    rows = 1_000_000 if quick else 2_000_000
    rounds = throughput.QUICK_ROUNDS if quick else throughput.ROUNDS
    found: dict[str, Any] = {
        "machine": machine(),
        "rows": rows,
        "throughput": throughput.measure(stage, rows, rounds, tell),
    }
    if quick:
        found["latency"] = latency.measure(
            stage, 20, tell, sizes=(10,), delta=False, warm_up=latency.WARM_UP_COLD
        )
    else:
        found["latency"] = latency.measure(stage, 50, tell)
        found["flights"] = flights.measure(stage, 5, tell)
    with page_cache.full(stage.folder):  # again, where the peers were
        tell("phases")
        found["phases"] = hot_path.measure_phases(stage, rows)
        if not quick:
            found["steps_ms"] = hot_path.measure_steps(stage, 60)
            tell("processor")
            found["processor"] = [
                hot_path.measure_processor(stage, shape, count, epochs)
                for shape, count, epochs in (
                    (RowShape(100), rows, 5),
                    (RowShape(1024), RowShape(1024).count(rows), 5),
                    (RowShape(100), 10, 60),
                )
            ]
            tell("memory")
            found["memory"] = hot_path.measure_memory(stage, 2 * rows)
            tell("time to visible")
            found["visible"] = latency.measure_visible(stage, 40)
            found["growth"] = growth.measure(stage, 3, tell)
            found["empty_tasks_s"] = growth.measure_empty(stage, 3, tell)
            found["idle"] = idle.measure(stage, 120, tell)
            found["cold_s"] = cold.measure(stage, 5, tell)
    return found


def _show(results: dict[str, Any], console: Console) -> None:
    rates = Table("path", "rows/s", "lowest .. highest")
    for path, spread in sorted(results["base"].items(), key=lambda item: -item[1]["median"]):
        rates.add_row(
            path, f"{spread['median']:,.0f}", f"{spread['lowest']:,.0f} .. {spread['highest']:,.0f}"
        )
    console.print(rates)
    goals = Table("figure", "is", "should be", "")
    for name, value, wanted, reached in targets(results):
        mark = {True: "[green]yes[/]", False: "[red]no[/]", None: "not measured"}[reached]
        goals.add_row(name, "" if value is None else f"{value:g}", wanted, mark)
    console.print(goals)


if __name__ == "__main__":
    app()
