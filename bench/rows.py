"""The rows that all peers write: the same bytes for everybody."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from bench.environment import CORES
from eos.wire.batch import Rows

_DIGITS: Final = 9
"""A value is a text that ends with the row's number."""


@dataclass(frozen=True)
class RowShape:
    """Which rows.

    Attributes:
        value_bytes: of each value.
        columns: ``value``, ``keyed`` (key and event time too) or ``properties`` (two of them too).
        partitions: of the topic.
    """

    value_bytes: int = 100
    columns: str = "value"
    partitions: int = 1

    @property
    def name(self) -> str:
        """For tables."""
        return f"{self.value_bytes} B, {self.columns}, {self.partitions} partitions"

    def count(self, rows: int) -> int:
        """How many are as many bytes of values as so many ``rows`` of the usual size."""
        return rows * RowShape.value_bytes // self.value_bytes


def frame(spark: SparkSession, shape: RowShape, count: int) -> DataFrame:
    """``count`` rows in as many Spark partitions as there are cores.

    Made as they are read, by Spark's own code and at a cost that ``spark_empty`` shows; a cache
    would measure the reading of caches.
    """
    text = _text(shape.value_bytes)[:-_DIGITS].decode()
    value = f"concat('{text}', lpad(string(id), {_DIGITS}, '0')) AS value"
    chosen = [value]
    if shape.columns == "keyed":
        chosen += ["concat('user-', id % 50000) AS key", "1700000000000 + id AS event_time"]
    elif shape.columns == "properties":
        chosen.append("map('source', 'bench', 'row', string(id)) AS properties")
    return spark.range(0, count, 1, CORES).selectExpr(*chosen)


def arrow_rows(shape: RowShape, start: int, count: int) -> Rows:
    """The rows ``start`` to ``start + count`` of ``frame``'s values as Arrow has them."""
    values = np.tile(np.frombuffer(_text(shape.value_bytes), np.uint8), (count, 1))
    numbers = np.char.zfill(np.arange(start, start + count).astype(f"U{_DIGITS}"), _DIGITS)
    digits = numbers.astype(f"S{_DIGITS}").view(np.uint8)
    values[:, -_DIGITS:] = digits.reshape(count, _DIGITS)
    offsets = np.arange(count + 1, dtype=np.int32) * shape.value_bytes
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(values))]
    return Rows(value=pa.Array.from_buffers(pa.binary(), count, buffers))


def _text(size: int) -> bytes:
    return (b"the quick brown fox jumps " * (size // 26 + 1))[:size]
