"""The comparison: eos next to its alternatives, all in one run on one machine."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from matplotlib.axes import Axes
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
        found["phases"] = throughput.measure_phases(env, rows)
        if not quick:
            found["steps_ms"] = throughput.measure_steps(env, 60)
            tell("processor")
            found["processor"] = [
                throughput.measure_processor(env, shape, count, epochs)
                for shape, count, epochs in (
                    (RowShape(100), rows, 5),
                    (RowShape(1024), RowShape(1024).count(rows), 5),
                    (RowShape(100), 10, 60),
                )
            ]
            tell("memory")
            found["memory"] = throughput.measure_memory(env, 2 * rows)
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


# --- plots -------------------------------------------------------------------------------------

_EOS = "#1f6f8b"
_OTHER = "#b0b7bf"


def draw(results: Results, folder: Path) -> list[Path]:
    """Write the pictures of all measured parts; return their files."""
    made = [
        _rates_plot(results, folder / "rows_per_s.png"),
        _latency_plot(results, folder / "latency.png"),
    ]
    if results.get("growth"):
        made.append(_growth_plot(results, folder / "growth.png"))
    if results.get("phases"):
        made.append(_phases_plot(results, folder / "phases.png"))
    return made


def _save(figure: Figure, path: Path) -> Path:
    figure.savefig(path, dpi=120)
    return path


def _axes(width: float, height: float, count: int = 1) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(width, height), layout="constrained")
    found = figure.subplots(1, count, squeeze=False)
    axes = list(found[0])
    for one in axes:
        one.spines[["top", "right"]].set_visible(False)
    return figure, axes


_NAMES = {
    "eos": "eos, exactly-once",
    "spark_empty": "Spark alone",
    "eos_from_arrow": "eos, rows ready in Arrow",
    "raw_sockets": "ready-made frames, raw sockets",
    "java_transaction": "Java client, one transaction",
    "pulsar_spark": "pulsar-spark",
    "pulsar_client": "pulsar-client, at-least-once",
    "no_transaction": "eos without transactions",
    "collect": "a collect alone",
    "spark_python": "through Spark's Python alone",
    "delta": "Delta append",
    "partitions_no_key": "rows without keys",
    "partitions_keyed": "rows with keys",
    "partitions_keyed_batch": "rows with keys, batch jobs",
    "tasks": "eos",
    "tasks_spark_empty": "Spark alone",
    "sinks": "eos",
}


def _bars(
    axes: Axes,
    spreads: dict[str, Any],
    scale: float,
    *,
    ends: tuple[str, str],
    is_named: bool = True,
) -> None:
    """Draw medians with a part of their spread, from one of the ``ends`` to the other.

    A bar's label has its median, and its name if ``is_named``.
    """
    medians = [spread["median"] / scale for spread in spreads.values()]
    below = [(spread["median"] - spread[ends[0]]) / scale for spread in spreads.values()]
    above = [(spread[ends[1]] - spread["median"]) / scale for spread in spreads.values()]
    colors = [_EOS if name.startswith("eos") else _OTHER for name in spreads]
    axes.barh(range(len(medians)), medians, xerr=[below, above], color=colors, capsize=3)
    axes.invert_yaxis()
    # A peer that sometimes stops for seconds would make all other bars tiny.
    right = 1.4 * max(medians)
    axes.set_xlim(0, right)
    for place, (median, over) in enumerate(zip(medians, above, strict=True)):
        if median + over > right:
            axes.text(right, place - 0.1, f"to {median + over:,.0f} ", ha="right", va="bottom")
    labels = [
        f"{_NAMES[name]}   {median:.3g}" if is_named else f"{median:.3g}"
        for name, median in zip(spreads, medians, strict=True)
    ]
    axes.set_yticks(range(len(labels)), labels)


def _rates_plot(results: Results, path: Path) -> Path:
    figure, (axes,) = _axes(8, 3.6)
    ordered = sorted(results["base"].items(), key=lambda item: -item[1]["median"])
    _bars(axes, dict(ordered), 1e6, ends=("lowest", "highest"))
    axes.set_xlabel("million rows/s, 100-byte values, one partition (median, lowest to highest)")
    axes.set_title("Rows per second on two cores, broker included")
    return _save(figure, path)


def _latency_plot(results: Results, path: Path) -> Path:
    figure, every = _axes(11, 3, len(results["latency"]))
    for axes, (rows, found) in zip(every, results["latency"].items(), strict=True):
        spreads = {name: spread for name, spread in found.items() if name in _NAMES}
        _bars(axes, spreads, 1, ends=("p10", "p90"), is_named=axes is every[0])
        axes.set_title(f"{int(rows):,} rows")
        axes.set_xlabel("ms for a micro-batch (p10 to p90)")
    return _save(figure, path)


def _growth_plot(results: Results, path: Path) -> Path:
    figure, every = _axes(12, 3.6, 3)
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
    return _save(figure, path)


def _phases_plot(results: Results, path: Path) -> Path:
    figure, (axes,) = _axes(8, 3.4)
    phases = results["phases"]["ns_per_row"]
    axes.barh(list(phases), list(phases.values()), color=_EOS)
    axes.invert_yaxis()
    axes.set_xlabel("ns for each row of 100 bytes, one process")
    axes.set_title("Where the time of a row goes, from Arrow to the last receipt")
    return _save(figure, path)
