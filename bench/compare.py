"""The comparison: eos next to its alternatives, all in one run on one machine."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.table import Table

from bench import hot_path, latency, throughput
from bench.comparison_report import draw, markdown
from bench.environment import Environment, environment, full_page_cache, machine
from bench.peers import built_jars
from bench.publish import OUT, OutFolder, Page, progress, put_between, split_at
from bench.row_sources import RowShape
from bench.scaling import measure_empty_tasks, measure_growth
from bench.targets import base_rates, reached_targets, summary

_MARKER: Final = "bench"


def compare(
    quick: Annotated[
        bool, typer.Option("--quick", help="Only the main figures, in minutes.")
    ] = False,
    out: OutFolder = OUT,
    page: Page = None,
) -> None:
    """Compare eos with its alternatives; write results.json, results.md and plots."""
    console, tell = progress()
    began = time.monotonic()
    if page is not None:
        split_at(page, _MARKER)  # fails now, and not after the run
    tell("a full page cache, a broker, Spark")
    with environment(built_jars(tell)) as env:
        found = _measure(env, tell, quick=quick)
    found["took_s"] = round(time.monotonic() - began)
    results = {**summary(found), "base": base_rates(found["throughput"]), **found}
    out.mkdir(parents=True, exist_ok=True)
    (out / "results.json").write_text(json.dumps(results, indent=2) + "\n")
    (out / "results.md").write_text(markdown(results))
    plots = draw(results, out)
    if page is not None:
        put_between(page, markdown(results), _MARKER)
    _show(results, console)
    console.print(f"{out}/results.json, results.md, {', '.join(plot.name for plot in plots)}")


def _measure(env: Environment, tell: Callable[[str], None], *, quick: bool) -> dict[str, Any]:
    rows = 1_000_000 if quick else 2_000_000
    rounds = throughput.QUICK_ROUNDS if quick else throughput.ROUNDS
    found: dict[str, Any] = {
        "machine": machine(),
        "rows": rows,
        "throughput": throughput.measure(env, rows, rounds, tell),
    }
    if quick:
        found["latency"] = latency.measure(
            env, 20, tell, sizes=(10,), delta=False, warm_up=latency.WARM_UP_COLD
        )
    else:
        found["latency"] = latency.measure(env, 50, tell)
        found["flights"] = throughput.measure_flights(env, 5, tell)
    with full_page_cache(env.folder):  # again: the peers had used it
        tell("phases")
        found["phases"] = hot_path.measure_phases(env, rows)
        if not quick:
            found["steps_ms"] = hot_path.measure_steps(env, 60)
            tell("processor")
            found["processor"] = [
                hot_path.measure_processor(env, shape, count, epochs)
                for shape, count, epochs in (
                    (RowShape(100), rows, 5),
                    (RowShape(1024), RowShape(1024).count(rows), 5),
                    (RowShape(100), 10, 60),
                )
            ]
            tell("memory")
            found["memory"] = hot_path.measure_memory(env, 2 * rows)
            tell("time to visible")
            found["visible"] = latency.measure_visible(env, 40)
            found["growth"] = measure_growth(env, 3, tell)
            found["empty_tasks_s"] = measure_empty_tasks(env, 3, tell)
            found["idle"] = latency.measure_idle(env, 120, tell)
            found["cold_s"] = latency.measure_first_epoch(env, 5, tell)
    return found


def _show(results: dict[str, Any], console: Console) -> None:
    rates = Table("path", "rows/s", "lowest .. highest")
    for path, spread in sorted(results["base"].items(), key=lambda item: -item[1]["median"]):
        rates.add_row(
            path, f"{spread['median']:,.0f}", f"{spread['lowest']:,.0f} .. {spread['highest']:,.0f}"
        )
    console.print(rates)
    goals = Table("figure", "is", "should be", "reached")
    for name, value, wanted, reached in reached_targets(results):
        mark = {True: "[green]yes[/]", False: "[red]no[/]", None: "not measured"}[reached]
        goals.add_row(name, "" if value is None else f"{value:g}", wanted, mark)
    console.print(goals)
