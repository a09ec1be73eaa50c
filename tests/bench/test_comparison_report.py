"""From measurements to figures, targets, tables and the picture; `make bench` measures."""

from __future__ import annotations

import pytest

from bench.compare import draw
from bench.comparison_report import TARGETS, base_rates, markdown, reached_targets, summary


def spread(median: float) -> dict[str, float]:
    ends = {"p10": 0.95, "p90": 1.05, "lowest": 0.9, "highest": 1.1}
    return {"median": median, "count": 5, **{end: median * part for end, part in ends.items()}}


def entry(
    path: str, rate: float, columns: str = "value", partitions: int = 1, value_bytes: int = 100
) -> dict:
    shape = {"value_bytes": value_bytes, "columns": columns, "partitions": partitions}
    rows = (250_000 if path == "pulsar_client" else 2_000_000) * 100 // value_bytes
    return {"path": path, "shape": shape, "rows": rows, "rows_per_s": spread(rate)}


@pytest.fixture
def results() -> dict:
    epochs_ms = {
        "eos": 240.0,
        "no_transaction": 200.0,
        "collect": 220.0,
        "spark_python": 230.0,
        "pulsar_spark": 192.0,
        "delta": 900.0,
    }
    epoch = {name: {**spread(ms), "p99": ms * 2} for name, ms in epochs_ms.items()}
    found = {
        "machine": {"cores": 2},
        "throughput": [
            entry("eos", 1_500_000),
            entry("pulsar_client", 100_000),
            entry("java_transaction", 250_000),
            entry("pulsar_spark", 750_000),
            entry("eos_from_arrow", 1_800_000),
            entry("raw_sockets", 2_000_000),
            entry("no_transaction", 1_600_000),
            entry("eos", 1_000_000, "keyed"),
            entry("pulsar_client", 50_000, "keyed"),
            entry("eos", 1_200_000, "value", 16),
            entry("pulsar_client", 100_000, "value", 16),
            entry("eos", 1_000_000, "keyed", 16),
            entry("pulsar_client", 50_000, "keyed", 16),
            entry("eos", 1_600_000, "value", 4),
            entry("pulsar_spark", 1_000_000, "value", 4),
            entry("eos", 180_000, "value", 1, 1_024),
            entry("pulsar_spark", 150_000, "value", 1, 1_024),
            entry("eos_from_arrow", 380_000, "value", 1, 1_024),
            entry("raw_sockets", 400_000, "value", 1, 1_024),
            entry("eos", 210_000, "value", 4, 1_024),
            entry("pulsar_spark", 200_000, "value", 4, 1_024),
        ],
        "latency": {"10": epoch},
        "phases": {"ns_per_row": {"socket": 120.0, "join to payloads": 80.0}, "rows": 10},
        "growth": {
            curve: [{"x": 1, "ms": spread(10)}, {"x": 50, "ms": spread(12)}]
            for curve in
            (
                "partitions_no_key",
                "partitions_keyed",
                "partitions_keyed_batch",
                "tasks",
                "tasks_spark_empty",
                "sinks",
            )
        },
        "empty_tasks_s": {"eos": spread(21.0), "spark_empty": spread(20.0)},
        "idle": {"cores": {"broker": 0.2, "Python driver": 0.08, "Python workers": 0.03},
                 "seconds": 120},
        "visible": {**spread(400), "p99": 900.0},
        "memory": {"driver_grows_mb": 0.3, "worker_mb": 194.2, "rows": 4_000_000,
                   "wire_bytes_per_row": 106.04},
    }  # fmt: skip
    return {**summary(found), "base": base_rates(found["throughput"]), **found}


def test_figures_are_ratios_within_one_run(results):
    assert results["ratio_to_pulsar_client"] == 15
    assert results["ratio_to_java_transaction"] == 6
    assert results["ratio_to_ceiling"] == 0.9
    assert results["cost_of_keys"] == 1.5
    assert results["cost_of_keys_16_partitions"] == 1.2
    assert results["epoch_overhead_ms"] == 40
    assert results["ratio_to_no_transaction"] == 0.94
    assert results["ratio_to_ceiling_1_kib"] == 0.95
    assert results["epoch_to_collect"] == 1.09
    assert results["keys_into_512_partitions"] == 1.2
    assert results["empty_tasks"] == 1.05
    assert results["idle_cores"] == 0.11
    assert results["rows_per_s"]["eos"] == 1_500_000


def test_a_missed_target_is_not_reached(results):
    assert [reached for *_, reached in reached_targets(results)] == [True] * len(TARGETS)
    worse = {**results, "ratio_to_ceiling": 0.69, "epoch_overhead_ms": 51}
    reached = {name: reached for name, *_, reached in reached_targets(worse)}
    assert reached["ratio_to_ceiling"] is reached["epoch_overhead_ms"] is False


def test_the_tables_have_the_measurements(results):
    text = markdown(results)
    assert "2,000,000 rows of 100 bytes or 195,312 rows of 1,024 bytes; `pulsar-client`" in text
    assert "no faster with more, 250,000 rows of 100 bytes." in text
    assert "| **eos, exactly-once**, from a DataFrame | **1.50 M** | 1.35 M to 1.65 M |" in text
    assert "| 100 B, value, 1 (5) | 1.50 M | 100 k | 15.0 | 250 k | 6.0 | 750 k | 2.0 |" in text
    assert "| 100 B, value, key, event time, 1 (5) | 1.00 M | 50 k | 20.0 | | |" in text
    assert "| pulsar-spark, at-least-once, in the JVM | **750 k** | 675 k to 825 k |" in text
    assert "| 10 rows | 240, 480 | 200, 400 | 220, 440 | 230, 460 | 192, 384 | 900, 1800 |" in text
    assert "| topic partitions, a stream with keys, 1 to 50 | 10 | 12 |" in text
    assert "| 2,000 Spark tasks, 50 of them with rows | 21.0 s | 20.0 s, Spark alone |" in text
    assert (
        "uses these shares of a core: broker 0.20, Python driver 0.08, Python workers 0.03." in text
    )
    assert "until a reader has it: p50 400 ms, p99 900 ms." in text
    assert "In an epoch of 4,000,000 rows" in text
    assert "106 bytes for each row." in text
    assert "| ratio to pulsar client | 15 | at least 15 | yes |" in text
    assert "| idle cores | 0.11 | at most 0.15 | yes |" in text


def test_the_picture_is_drawn(results, tmp_path):
    draw(results, tmp_path / "growth.png")
    assert (tmp_path / "growth.png").read_bytes().startswith(b"\x89PNG")
