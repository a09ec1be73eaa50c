"""The parts of a task that need no Spark."""

from __future__ import annotations

import pyarrow as pa

from sinks.task import gathered


def batch(*values: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"value": pa.array(values, pa.int64())})


def test_small_batches_are_joined_in_order_until_they_are_large_enough():
    joined = list(gathered([batch(1), batch(2), batch(3), batch(4), batch(5)], 16))
    assert [b.column(0).to_pylist() for b in joined] == [[1, 2], [3, 4], [5]]


def test_a_large_batch_passes_without_a_copy():
    large = batch(*range(100))
    (passed,) = gathered([large], 16)
    assert passed is large
