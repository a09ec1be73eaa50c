"""The comparison's figures, and their targets. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

Results = dict[str, Any]

_BASE: Final = {"value_bytes": 100, "columns": "value", "partitions": 1}

TARGETS: Final = {
    "ratio_to_pulsar_client": (15.0, "at least"),
    "ratio_to_pulsar_spark": (1.5, "at least"),
    "ratio_to_pulsar_spark_4_partitions": (1.5, "at least"),
    "ratio_to_pulsar_spark_1_kib": (1.0, "at least"),
    "ratio_to_pulsar_spark_1_kib_4_partitions": (1.0, "at least"),
    "flights_ratio_to_pulsar_spark": (2.0, "at least"),
    "ratio_to_no_transaction": (0.93, "at least"),
    "ratio_to_ceiling": (0.7, "at least"),
    "ratio_to_ceiling_1_kib": (0.95, "at least"),
    "cost_of_keys": (1.5, "at most"),
    "cost_of_keys_16_partitions": (1.5, "at most"),
    "epoch_overhead_ms": (50.0, "at most"),
    "epoch_overhead_ratio": (1.25, "at most"),
    "epoch_to_collect": (1.15, "at most"),
    "epoch_to_pulsar_spark": (1.25, "at most"),
    "keys_into_512_partitions": (2.0, "at most"),
    "empty_tasks": (1.1, "at most"),
    "first_epoch": (1.2, "at most"),
    "idle_cores": (0.15, "at most"),
}
"""The target of each figure, on two cores; values of 100 bytes in one partition, unless the name
says otherwise."""


def base_rates(throughput: Iterable[Results]) -> dict[str, Any]:
    """Return for each path its rows per second, a spread, for values of 100 bytes alone."""
    return _rates_of(throughput, _BASE)


def _rates_of(throughput: Iterable[Results], shape: Results) -> dict[str, Any]:
    return {entry["path"]: entry["rows_per_s"] for entry in throughput if entry["shape"] == shape}


def summary(found: Results) -> Results:
    """Return the figures that have targets, and others; None for those that were not measured."""
    rates = _medians(found, 100, 1)
    flights = found.get("flights", {}).get("rows_per_s", {})
    real = {path: spread["median"] for path, spread in flights.items()}
    small = found["latency"].get("10", {})
    return {
        "rows_per_s": rates,
        "ratio_to_pulsar_client": _ratio_to(rates, "pulsar_client"),
        "ratio_to_java_transaction": _ratio_to(rates, "java_transaction"),
        "ratio_to_pulsar_spark": _ratio_to(rates, "pulsar_spark"),
        "ratio_to_pulsar_spark_4_partitions": _ratio_to(_medians(found, 100, 4), "pulsar_spark"),
        "ratio_to_pulsar_spark_1_kib": _ratio_to(_medians(found, 1024, 1), "pulsar_spark"),
        "ratio_to_pulsar_spark_1_kib_4_partitions": _ratio_to(
            _medians(found, 1024, 4), "pulsar_spark"
        ),
        "flights_ratio_to_pulsar_spark": _ratio_to(real, "pulsar_spark"),
        "ratio_to_no_transaction": _ratio_to(rates, "no_transaction"),
        "ratio_to_ceiling": _ratio_to_ceiling(rates),
        "ratio_to_ceiling_1_kib": _ratio_to_ceiling(_medians(found, 1024, 1)),
        "cost_of_keys": _cost_of_keys(found["throughput"], 1),
        "cost_of_keys_16_partitions": _cost_of_keys(found["throughput"], 16),
        "epoch_overhead_ms": small.get("overhead_ms"),
        "epoch_overhead_ratio": small.get("overhead_ratio"),
        "epoch_to_collect": _times(small, "eos", "collect"),
        "epoch_to_pulsar_spark": _times(small, "eos", "pulsar_spark"),
        "keys_into_512_partitions": _growth_of(found.get("growth", {}).get("partitions_keyed")),
        "empty_tasks": _times(found.get("empty_tasks_s", {}), "eos", "spark_empty"),
        "first_epoch": _times(found.get("cold_s", {}), "eos", "pulsar_client"),
        "idle_cores": _idle_cores(found.get("idle")),
    }


def _medians(found: Results, value_bytes: int, partitions: int) -> dict[str, float]:
    """Return for each path its median rows per second, for values alone."""
    shape = {**_BASE, "value_bytes": value_bytes, "partitions": partitions}
    rates = _rates_of(found["throughput"], shape)
    return {path: spread["median"] for path, spread in rates.items()}


def _ratio_to(rates: dict[str, float], peer: str) -> float | None:
    """Return None if the peer was not measured."""
    return round(rates["eos"] / rates[peer], 2) if peer in rates else None


def _ratio_to_ceiling(rates: dict[str, float]) -> float | None:
    if "raw_sockets" not in rates:
        return None
    return round(rates["eos_from_arrow"] / rates["raw_sockets"], 3)


def _times(spreads: Results, name: str, peer: str) -> float | None:
    """Return how many times as long eos takes; None if one of them was not measured."""
    if not {name, peer} <= spreads.keys():
        return None
    times: float = spreads[name]["median"] / spreads[peer]["median"]
    return round(times, 2)


def _growth_of(curve: list[Results] | None) -> float | None:
    """Return the time with the most, divided by that with the fewest."""
    return round(curve[-1]["ms"]["median"] / curve[0]["ms"]["median"], 2) if curve else None


def _idle_cores(idle: Results | None) -> float | None:
    """Return the cores of the Python processes."""
    if idle is None:
        return None
    cores: float = idle["cores"]["Python driver"] + idle["cores"]["Python workers"]
    return round(cores, 3)


def _cost_of_keys(throughput: Iterable[Results], partitions: int) -> float | None:
    """Return how much longer rows with a key and an event time take, by partitions of the topic."""
    rates = {
        entry["shape"]["columns"]: entry["rows_per_s"]["median"]
        for entry in throughput
        if entry["path"] == "eos"
        and entry["shape"]["value_bytes"] == _BASE["value_bytes"]
        and entry["shape"]["partitions"] == partitions
    }
    return round(rates["value"] / rates["keyed"], 2) if {"value", "keyed"} <= set(rates) else None


def reached_targets(results: Results) -> list[tuple[str, Any, str, bool | None]]:
    """Return figure, value, target, and whether it is reached (None: not measured)."""
    rows = []
    for name, (wanted, direction) in TARGETS.items():
        value = results.get(name)
        reached = None
        if value is not None:
            reached = value >= wanted if direction == "at least" else value <= wanted
        rows.append((name, value, f"{direction} {wanted:g}", reached))
    return rows
