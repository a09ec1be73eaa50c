"""The comparison: eos next to its alternatives, all in one run on one machine."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from bench import latency, throughput
from bench.comparison_report import Results, base_rates, markdown, reached_targets, summary
from bench.environment import Environment, environment, full_page_cache, machine
from bench.peers import built_jars
from bench.publish import OUT, OutFolder, Page, progress, put_between, split_at
from bench.scaling import measure_empty_tasks, measure_growth
from bench.spark_writers import RowShape

_MARKER: Final = "bench"
_ROWS: Final = 2_000_000


def compare(
    out: OutFolder = OUT,
    page: Page = None,
) -> None:
    """Compare eos with its alternatives; write results.json, results.md, growth.png."""
    console, tell = progress()
    began = time.monotonic()
    if page is not None:
        split_at(page, _MARKER)  # fails now, and not after the run
    tell("a full page cache, a broker, Spark")
    with environment(built_jars(tell)) as env:
        found = _measure(env, tell)
    found["took_s"] = round(time.monotonic() - began)
    results = {**summary(found), "base": base_rates(found["throughput"]), **found}
    out.mkdir(parents=True, exist_ok=True)
    (out / "results.json").write_text(json.dumps(results, indent=2) + "\n")
    (out / "results.md").write_text(markdown(results))
    draw(results, out / "growth.png")
    if page is not None:
        put_between(page, markdown(results), _MARKER)
    _show(results, console)
    console.print(f"{out}/results.json, results.md, growth.png")


def _measure(env: Environment, tell: Callable[[str], None]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "machine": machine(),
        "rows": _ROWS,
        "throughput": throughput.measure(env, _ROWS, throughput.ROUNDS, tell),
        "latency": latency.measure(env, 50, tell),
    }
    with full_page_cache(env.folder):  # again: the peers had used it
        tell("phases")
        found["phases"] = throughput.measure_phases(env, _ROWS)
        found["steps_ms"] = throughput.measure_steps(env, 60)
        tell("processor")
        found["processor"] = [
            throughput.measure_processor(env, shape, count, epochs)
            for shape, count, epochs in (
                (RowShape(100), _ROWS, 5),
                (RowShape(1024), RowShape(1024).count(_ROWS), 5),
                (RowShape(100), 10, 60),
            )
        ]
        tell("memory")
        found["memory"] = throughput.measure_memory(env, 2 * _ROWS)
        tell("time to visible")
        found["visible"] = latency.measure_visible(env, 40)
        found["growth"] = measure_growth(env, 3, tell)
        found["empty_tasks_s"] = measure_empty_tasks(env, 3, tell)
        found["idle"] = latency.measure_idle(env, 120, tell)
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
        goals.add_row(name, f"{value:g}", wanted, "[green]yes[/]" if reached else "[red]no[/]")
    console.print(goals)


# --- the picture --------------------------------------------------------------------------------

_NAMES = {
    "partitions_no_key": "rows without keys",
    "partitions_keyed": "rows with keys",
    "partitions_keyed_batch": "rows with keys, batch jobs",
    "tasks": "eos",
    "tasks_spark_empty": "Spark alone",
    "sinks": "eos",
}


def draw(results: Results, path: Path) -> None:
    """Draw how the time of an epoch grows."""
    figure = Figure(figsize=(12, 3.6), layout="constrained")
    every = figure.subplots(1, 3)
    groups = {
        "topic partitions": ("partitions_no_key", "partitions_keyed", "partitions_keyed_batch"),
        "Spark tasks": ("tasks", "tasks_spark_empty"),
        "sinks in one driver": ("sinks",),
    }
    for axes, (title, curves) in zip(every, groups.items(), strict=True):
        for curve in curves:
            points = results["growth"][curve]
            xs = [point["x"] for point in points]
            axes.plot(
                xs, [point["ms"]["median"] for point in points], marker="o", label=_NAMES[curve]
            )
            axes.fill_between(
                xs,
                [point["ms"]["lowest"] for point in points],
                [point["ms"]["highest"] for point in points],
                alpha=0.2,
            )
        axes.set_ylim(bottom=0)
        axes.set_xlabel(title)
        axes.set_ylabel("ms for an epoch")
        axes.legend(frameon=False)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=120)
