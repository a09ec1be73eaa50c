"""The source of ready-made batches has the columns of the real one."""

from __future__ import annotations

import pytest
from pyspark.sql.datasource import InputPartition

from bench.reading import ReadyBatches


@pytest.mark.parametrize("metadata", ["false", "true"])
def test_ready_batches_have_all_columns_of_the_source(metadata):
    source = ReadyBatches({"metadata": metadata, "rows": "30000", "tasks": "2"})
    batches = list(source.reader(source.schema()).read(InputPartition(0)))
    assert sum(batch.num_rows for batch in batches) == 15_000
    assert batches[0].schema.names == source.schema().names
