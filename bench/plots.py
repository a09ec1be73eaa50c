"""Pictures of a run: rates side by side, epochs, curves, and where the time goes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.results import Results

_EOS = "#1f6f8b"
_OTHER = "#b0b7bf"


def draw(results: Results, folder: Path) -> list[Path]:
    """PNG files of what was measured."""
    made = [_rates(results, folder / "rows_per_s.png"), _latency(results, folder / "latency.png")]
    if results.get("growth"):
        made.append(_growth(results, folder / "growth.png"))
    if results.get("phases"):
        made.append(_phases(results, folder / "phases.png"))
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
    """Medians with their spread, from one of its figures to another, the ``ends``; a bar's label
    has its median, and its name when ``is_named``."""
    medians = [spread["median"] / scale for spread in spreads.values()]
    below = [(spread["median"] - spread[ends[0]]) / scale for spread in spreads.values()]
    above = [(spread[ends[1]] - spread["median"]) / scale for spread in spreads.values()]
    colors = [_EOS if name.startswith("eos") else _OTHER for name in spreads]
    axes.barh(range(len(medians)), medians, xerr=[below, above], color=colors, capsize=3)
    axes.invert_yaxis()
    # A peer that stops for seconds now and then would press all others to the edge.
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


def _rates(results: Results, path: Path) -> Path:
    figure, (axes,) = _axes(8, 3.6)
    ordered = sorted(results["base"].items(), key=lambda item: -item[1]["median"])
    _bars(axes, dict(ordered), 1e6, ends=("lowest", "highest"))
    axes.set_xlabel("million rows/s, 100-byte values, one partition (median, lowest to highest)")
    axes.set_title("Rows per second on two cores, broker included")
    return _save(figure, path)


def _latency(results: Results, path: Path) -> Path:
    figure, every = _axes(11, 3, len(results["latency"]))
    for axes, (rows, found) in zip(every, results["latency"].items(), strict=True):
        spreads = {name: spread for name, spread in found.items() if name in _NAMES}
        _bars(axes, spreads, 1, ends=("p10", "p90"), is_named=axes is every[0])
        axes.set_title(f"{int(rows):,} rows")
        axes.set_xlabel("ms for a micro-batch (p10 to p90)")
    return _save(figure, path)


def _growth(results: Results, path: Path) -> Path:
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


def _phases(results: Results, path: Path) -> Path:
    figure, (axes,) = _axes(8, 3.4)
    phases = results["phases"]["ns_per_row"]
    axes.barh(list(phases), list(phases.values()), color=_EOS)
    axes.invert_yaxis()
    axes.set_xlabel("ns for each row of 100 bytes, one process")
    axes.set_title("Where the time of a row goes, from Arrow to the last receipt")
    return _save(figure, path)
