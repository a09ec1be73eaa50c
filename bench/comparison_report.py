"""The comparison's tables, as Markdown, and its plots."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.targets import Results, reached_targets


def markdown(results: Results) -> str:
    """Return the tables of docs/measured.md."""
    lines = [*_throughput(results), ""]
    if "flights" in results:
        lines += [*_flights(results["flights"]), ""]
    lines += _latency(results)
    if "growth" in results:
        lines += ["", *_growth(results["growth"])]
    if "cold_s" in results:
        lines += ["", *_starts(results)]
    if "memory" in results:
        lines += ["", _in_words(results)]
    lines += ["", *_goals(results)]
    return "\n".join(lines) + "\n"


def _goals(results: Results) -> list[str]:
    """Return the table of the targets whose figures were measured."""
    lines = ["| target | is | should be | reached |", "|---|---:|---|---|"]
    for name, value, wanted, reached in reached_targets(results):
        if reached is not None:
            mark = "yes" if reached else "**no**"
            lines.append(f"| {name.replace('_', ' ')} | {value:g} | {wanted} | {mark} |")
    return lines


def _throughput(results: Results) -> list[str]:
    machine = results["machine"]
    rounds = results["base"]["eos"]["count"]
    lines = [
        f"{machine['cores']} cores, Spark, broker and all clients on them. Each round runs all of "
        f"them, in a new random order. {_rows_of_runs(results['throughput'])}",
        "",
        f"| rows of 100 bytes, one partition | rows/s, median of {rounds} | lowest to highest |",
        "|---|---:|---|",
    ]
    for path, text in _PATHS.items():
        spread = results["base"].get(path)
        if spread:
            low, high = _short(spread["lowest"]), _short(spread["highest"])
            lines.append(f"| {text} | **{_short(spread['median'])}** | {low} to {high} |")
    lines += [
        "",
        "| rows, columns, partitions (rounds) "
        "| eos | `pulsar-client` | ratio | Java, one txn | ratio | pulsar-spark | ratio |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    by_shape: dict[tuple[Any, ...], Results] = {}
    for entry in results["throughput"]:
        key = tuple(entry["shape"].values())
        by_shape.setdefault(key, {})[entry["path"]] = entry["rows_per_s"]
    for (size, columns, partitions), spreads in by_shape.items():
        rates = {path: spread["median"] for path, spread in spreads.items()}
        peers = (
            f"{_short(rates[peer])} | {rates['eos'] / rates[peer]:.1f}" if peer in rates else "|"
            for peer in ("pulsar_client", "java_transaction", "pulsar_spark")
        )
        lines.append(
            f"| {size} B, {_COLUMNS[columns]}, {partitions} ({spreads['eos']['count']}) "
            f"| {_short(rates['eos'])} | "
            f"{' | '.join(peers)} |"
        )
    return lines


def _rows_of_runs(throughput: Iterable[Results]) -> str:
    """Return the sentence about the rows of a run; slow paths write fewer."""
    counts: dict[tuple[bool, int], int] = {}
    for entry in throughput:
        counts[entry["path"] == "pulsar_client", entry["shape"]["value_bytes"]] = entry["rows"]
    usual, slow = (
        " or ".join(
            f"{count:,} rows of {size:,} bytes"
            for (is_slow, size), count in counts.items()
            if is_slow == which
        )
        for which in (False, True)
    )
    return f"A run writes {usual}; `pulsar-client`, no faster with more, {slow}."


def _flights(results: Results) -> list[str]:
    lines = [
        f"| flights as JSON, {results['rows']:,} of {results['value_bytes']:,} bytes, each by its "
        "defaults | rows/s | lowest to highest |",
        "|---|---:|---|",
    ]
    for path, spread in results["rows_per_s"].items():
        low, high = _short(spread["lowest"]), _short(spread["highest"])
        lines.append(f"| {_PATHS[path]} | {_short(spread['median'])} | {low} to {high} |")
    return lines


def _latency(results: Results) -> list[str]:
    some = next(iter(results["latency"].values()))
    paths = [path for path in _STREAMS if path in some]
    heads = " | ".join(_STREAMS[path] for path in paths)
    lines = [f"| {some['eos']['count']} micro-batches, ms (p50, p99) | {heads} |"]
    lines.append(f"|---|{'---:|' * len(paths)}")
    for rows, found in results["latency"].items():
        cells = [f"{found[path]['median']:.0f}, {found[path]['p99']:.0f}" for path in paths]
        lines.append(f"| {int(rows):,} rows | {' | '.join(cells)} |")
    return lines


def _growth(curves: Results) -> list[str]:
    lines = ["| ms for an epoch, as there is more | with the fewest | with the most |"]
    lines.append("|---|---:|---:|")
    for curve, text in _CURVES.items():
        first, last = curves[curve][0], curves[curve][-1]
        lines.append(
            f"| {text}, {first['x']} to {last['x']} | {first['ms']['median']:.0f} | "
            f"{last['ms']['median']:.0f} |"
        )
    return lines


def _starts(results: Results) -> list[str]:
    """Return the table of costs with hardly any rows."""
    empty, cold, idle = results["empty_tasks_s"], results["cold_s"], results["idle"]
    cores = ", ".join(f"{who} {share:.2f}" for who, share in idle["cores"].items())
    return [
        "| hardly any rows | eos | alternative |",
        "|---|---:|---:|",
        f"| 2,000 Spark tasks, 50 of them with rows | {empty['eos']['median']:.1f} s "
        f"| {empty['spark_empty']['median']:.1f} s, Spark alone |",
        f"| first epoch of a fresh driver, from the sink until it is read "
        f"| {cold['eos']['median']:.1f} s | {cold['pulsar_client']['median']:.1f} s, "
        "`pulsar-client` |",
        "",
        f"A stream of ten rows each second, for {idle['seconds']} s, uses these shares of a core: "
        f"{cores}.",
    ]


def _in_words(results: Results) -> str:
    visible, memory = results["visible"], results["memory"]
    return (
        f"From a row's entry into the source until a reader has it: p50 {visible['median']:.0f} "
        f"ms, p99 {visible['p99']:.0f} ms. In an epoch of {memory['rows']:,} rows of 100 bytes a "
        f"Python worker peaked at {memory['worker_mb']:.0f} MB, the driver's Python grew by "
        f"{memory['driver_grows_mb']:.1f} MB, and the broker received "
        f"{memory['wire_bytes_per_row']:.0f} bytes for each row."
    )


_PATHS: Final = {
    "eos": "**eos, exactly-once**, from a DataFrame",
    "spark_empty": "Spark alone: a `mapInArrow` that does nothing",
    "eos_from_arrow": "eos, rows ready in Arrow, two processes",
    "raw_sockets": "ready-made frames through two raw sockets",
    "no_transaction": "eos without its transaction and log",
    "java_transaction": "the Java client, one transaction",
    "pulsar_spark": "pulsar-spark, at-least-once, in the JVM",
    "pulsar_client": "`foreachPartition` with `pulsar-client`, at-least-once",
}
_STREAMS: Final = {
    "eos": "eos",
    "no_transaction": "no transaction",
    "collect": "a `collect` alone",
    "spark_python": "a `mapInArrow` that does nothing",
    "pulsar_spark": "pulsar-spark",
    "delta": "Delta append",
}
_COLUMNS: Final = {
    "value": "value",
    "keyed": "value, key, event time",
    "properties": "value, 2 properties",
}


_CURVES: Final = {
    "partitions_no_key": "topic partitions, a stream without keys",
    "partitions_keyed": "topic partitions, a stream with keys",
    "partitions_keyed_batch": "topic partitions, batch jobs with keys",
    "tasks": "Spark tasks",
    "tasks_spark_empty": "Spark tasks, Spark alone",
    "sinks": "sinks in one driver, ten rows each",
}


def _short(rate: float) -> str:
    return f"{rate / 1e6:.2f} M" if rate >= 1e6 else f"{rate / 1e3:.0f} k"


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
