"""From the costs of a message on one machine to the capacity of clusters."""

from __future__ import annotations

import pytest

from bench.backlog import Costs, capacity_table, limits, tables

COSTS = Costs(sent_core_us=1.0, copied_core_us=3.0, stored_bytes=100.0, epoch_core_ms=200.0)


def test_a_resource_is_full_when_half_of_it_is_used():
    found = limits(COSTS, nodes=3)
    # 1 to store, 3 to copy, and two more copies of each of the two: 8 µs; 24 of 48 cores.
    assert found["processors"] == pytest.approx(24 / 8e-6)
    # Producer, three bookies, Spark, broker, three bookies: 9 times over the network.
    assert found["network"] == pytest.approx(3 * 1.25e9 / 2 / 900)
    # Three copies in two topics, in journal and ledger.
    assert found["disks"] == pytest.approx(3 * 500e6 / 2 / 1200)


def test_ten_times_the_nodes_take_ten_times_as_much():
    three, thirty = limits(COSTS, 3), limits(COSTS, 30)
    assert thirty == pytest.approx({what: 10 * rate for what, rate in three.items()})


def test_the_table_uses_the_resource_that_is_full_first():
    lines = capacity_table(COSTS)
    assert lines[0] == "| | 3 nodes | 10 nodes | 30 nodes |"
    assert "| thousand messages/s, if disks were all | 625 | 2,083 | 6,250 |" in lines
    assert "| **times the average of 69,400/s** | **9.0** | **30.0** | **90.1** |" in lines
    assert lines[-2].endswith("| 7 | 2 | 1 |")  # 69,400 * 60 / (625,000 - 69,400)
    assert lines[-1].endswith("| 42% | 12% | 4% |")  # 50 epochs a second of 0.2 s: 10 of 24 cores


def test_a_cluster_that_is_too_small_never_catches_up():
    slow = Costs(1.0, 1_000.0, 100.0, 200.0)
    assert capacity_table(slow)[-2].split(" | ")[1:] == ["never", "408", "25 |"]


def test_the_table_of_the_backlog_has_the_measurements():
    epoch = {"latestOffset": 2_000, "addBatch": 30_000, "triggerExecution": 33_000}
    results = {
        "topics": 3_000,
        "messages": 250_000_000,
        "value_bytes": 110_000_000_000,
        "stored_bytes": 25_000_000_000,
        "filling": {"seconds": 300.0, "processor_s": {"broker": 250.0, "Python driver": 100.0}},
        "copying": {
            "seconds": 1_000.0,
            "processor_s": {"broker": 500.0, "Spark's JVM": 750.0, "Python workers": 500.0},
        },
        "epochs_ms": [epoch] * 25,
        "small_epoch_core_ms": {"broker": 20.0, "Spark's JVM": 180.0},
    }
    text = "\n".join(tables(results))
    assert "| thousand messages/s; times as fast as they arrive | 250; 3.6 |" in text
    assert "| seconds until all were copied, in 25 epochs | 1,000 |" in text
    assert "| the copying of an epoch, s, median | 30.0 |" in text
    assert "1.00 µs of a core (the broker's) to store, 7.00 to copy" in text
    assert "100 bytes each time; an epoch of ten rows cost 200 ms of a core." in text
