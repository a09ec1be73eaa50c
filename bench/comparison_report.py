"""The comparison's tables, as Markdown."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

Results = dict[str, Any]

_BASE: Final = {"value_bytes": 100, "columns": "value", "partitions": 1}

# The target of each figure, on two cores; values of 100 bytes in one partition, unless the name
# says otherwise. Those beside pulsar-spark are in ``bench.quick``.
TARGETS: Final = {
    "ratio_to_pulsar_client": (15.0, "at least"),
    "ratio_to_no_transaction": (0.93, "at least"),
    "ratio_to_ceiling": (0.7, "at least"),
    "ratio_to_ceiling_1_kib": (0.95, "at least"),
    "cost_of_keys": (1.5, "at most"),
    "cost_of_keys_16_partitions": (1.5, "at most"),
    "epoch_overhead_ms": (50.0, "at most"),
    "epoch_overhead_ratio": (1.25, "at most"),
    "epoch_to_collect": (1.15, "at most"),
    "keys_into_512_partitions": (2.0, "at most"),
    "empty_tasks": (1.1, "at most"),
    "idle_cores": (0.15, "at most"),
}


def base_rates(throughput: Iterable[Results]) -> dict[str, Any]:
    """Return for each path its rows per second, a spread, for values of 100 bytes alone."""
    return _rates_of(throughput, _BASE)


def _rates_of(throughput: Iterable[Results], shape: Results) -> dict[str, Any]:
    return {entry["path"]: entry["rows_per_s"] for entry in throughput if entry["shape"] == shape}


def summary(found: Results) -> Results:
    """Return the figures that have targets, and others."""
    rates = _medians(found, 100)
    small = found["latency"]["10"]
    cores = found["idle"]["cores"]
    return {
        "rows_per_s": rates,
        "ratio_to_pulsar_client": round(rates["eos"] / rates["pulsar_client"], 2),
        "ratio_to_java_transaction": round(rates["eos"] / rates["java_transaction"], 2),
        "ratio_to_no_transaction": round(rates["eos"] / rates["no_transaction"], 2),
        "ratio_to_ceiling": _ratio_to_ceiling(rates),
        "ratio_to_ceiling_1_kib": _ratio_to_ceiling(_medians(found, 1024)),
        "cost_of_keys": _cost_of_keys(found["throughput"], 1),
        "cost_of_keys_16_partitions": _cost_of_keys(found["throughput"], 16),
        "epoch_overhead_ms": round(small["eos"]["median"] - small["no_transaction"]["median"], 1),
        "epoch_overhead_ratio": _times(small, "no_transaction"),
        "epoch_to_collect": _times(small, "collect"),
        "keys_into_512_partitions": _growth_of(found["growth"]["partitions_keyed"]),
        "empty_tasks": _times(found["empty_tasks_s"], "spark_empty"),
        "idle_cores": round(cores["Python driver"] + cores["Python workers"], 3),
    }


def _medians(found: Results, value_bytes: int) -> dict[str, float]:
    rates = _rates_of(found["throughput"], {**_BASE, "value_bytes": value_bytes})
    return {path: spread["median"] for path, spread in rates.items()}


def _ratio_to_ceiling(rates: dict[str, float]) -> float:
    return round(rates["eos_from_arrow"] / rates["raw_sockets"], 3)


def _times(spreads: Results, peer: str) -> float:
    """Return how many times as long as its peer eos takes."""
    times: float = spreads["eos"]["median"] / spreads[peer]["median"]
    return round(times, 2)


def _growth_of(curve: list[Results]) -> float:
    times: float = curve[-1]["ms"]["median"] / curve[0]["ms"]["median"]
    return round(times, 2)


def _cost_of_keys(throughput: Iterable[Results], partitions: int) -> float:
    """Return how much longer rows with a key and an event time take, by partitions of the topic."""
    rates = {
        entry["shape"]["columns"]: entry["rows_per_s"]["median"]
        for entry in throughput
        if entry["path"] == "eos"
        and entry["shape"]["value_bytes"] == _BASE["value_bytes"]
        and entry["shape"]["partitions"] == partitions
    }
    cost: float = rates["value"] / rates["keyed"]
    return round(cost, 2)


def reached_targets(results: Results) -> list[tuple[str, float, str, bool]]:
    """Return figure, value, target, and whether it is reached."""
    rows = []
    for name, (wanted, direction) in TARGETS.items():
        value = results[name]
        reached = value >= wanted if direction == "at least" else value <= wanted
        rows.append((name, value, f"{direction} {wanted:g}", reached))
    return rows


def markdown(results: Results) -> str:
    """Return the tables of docs/measured.md."""
    parts = (
        _throughput(results),
        _latency(results),
        _growth(results["growth"]),
        _starts(results),
        [_in_words(results)],
        _goals(results),
    )
    return "\n\n".join("\n".join(lines) for lines in parts) + "\n"


def _goals(results: Results) -> list[str]:
    lines = ["| target | is | should be | reached |", "|---|---:|---|---|"]
    for name, value, wanted, reached in reached_targets(results):
        mark = "yes" if reached else "**no**"
        lines.append(f"| {name.replace('_', ' ')} | {value:g} | {wanted} | {mark} |")
    return lines


def _throughput(results: Results) -> list[str]:
    machine = results["machine"]
    rounds = results["base"]["eos"]["count"]
    lines = [
        f"{machine['cores']} cores, Spark, broker and all clients on them. Each round runs all of "
        "them, in a new random order; eos's claim is not timed. "
        f"{_rows_of_runs(results['throughput'])}",
        "",
        f"| rows of 100 bytes, one partition | rows/s, median of {rounds} | lowest to highest |",
        "|---|---:|---|",
    ]
    for path, text in _PATHS.items():
        spread = results["base"].get(path)
        if spread:  # pulsar-spark is left out if it could not be built
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
    empty, idle = results["empty_tasks_s"], results["idle"]
    cores = ", ".join(f"{who} {share:.2f}" for who, share in idle["cores"].items())
    return [
        "| hardly any rows | eos | alternative |",
        "|---|---:|---:|",
        f"| 2,000 Spark tasks, 50 of them with rows | {empty['eos']['median']:.1f} s "
        f"| {empty['spark_empty']['median']:.1f} s, Spark alone |",
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
