"""The source of ready-made batches has the columns of the real one; all ways read the same."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.datasource import InputPartition

from bench import reading
from bench.reading import ReadyBatches
from bench.tables import check_equal


@pytest.mark.parametrize("metadata", ["false", "true"])
def test_ready_batches_have_all_columns_of_the_source(metadata):
    source = ReadyBatches({"metadata": metadata, "rows": "30000", "tasks": "2"})
    batches = list(source.reader(source.schema()).read(InputPartition(0)))
    assert sum(batch.num_rows for batch in batches) == 15_000
    assert batches[0].schema.names == source.schema().names


@pytest.mark.parametrize(("shape", "count"), [("memory", 4), ("bookie", 2), ("small", 4)])
def test_all_ways_read_the_same_rows_of_the_same_topic(shape, count, monkeypatch):
    env: Any = SimpleNamespace(
        broker=SimpleNamespace(service_url="pulsar://127.0.0.1:1"),
        topic=lambda _: nullcontext("t"),
    )
    monkeypatch.setattr(reading, "PulsarClient", lambda _: nullcontext())
    monkeypatch.setattr(reading, "fill", lambda *_: None)
    monkeypatch.setattr(
        reading,
        "interleaved_rates",
        lambda _, ways, *__: {name: way.args for name, way in ways.items()},
    )
    chosen = reading.SHAPES[shape]
    found = reading.outside(env, 2_000_000, 5, lambda _: None, chosen)
    assert len(found) == count
    assert set(found.values()) == {
        ("pulsar://127.0.0.1:1", "t-partition-0", chosen.times * 2_000_000)
    }


def test_a_way_that_reads_other_rows_than_there_are_ends_the_benchmark(spark):
    ready = spark.range(1000)
    assert reading.read_all(ready, 1000) == 1000
    with pytest.raises(RuntimeError, match="1,000 rows were read of 1,001"):
        reading.read_all(ready, 1001)


def test_ways_that_write_other_rows_end_the_benchmark():
    check_equal([(3, 6), (3, 6)])
    with pytest.raises(RuntimeError, match="different rows"):
        check_equal([(3, 6), (3, 7)])
