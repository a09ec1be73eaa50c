"""The shapes of rows."""

from __future__ import annotations

from bench.spark_writers import RowShape


def test_large_rows_have_as_many_bytes_in_total():
    assert RowShape(100).count(2_000_000) == 2_000_000
    assert RowShape(1024).count(2_000_000) == 195_312
