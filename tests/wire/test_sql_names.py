"""Spark's names for Arrow types."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_type

from eos.wire.spark_text import sql_name

SCALARS = [
    pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(),
    pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.date32(), pa.null(),
    pa.timestamp("us", "UTC"), pa.decimal128(10, 2),
]  # fmt: skip


@pytest.mark.parametrize(
    "kind",
    [
        *SCALARS,
        pa.struct([("a", pa.int64()), ("b", pa.struct([("c", pa.string())]))]),
        pa.list_(pa.list_(pa.int32())),
        pa.map_(pa.string(), pa.struct([("x", pa.date32())])),
    ],
    ids=str,
)
def test_types_have_the_names_of_spark(kind):
    assert sql_name(kind) == from_arrow_type(kind).simpleString()


def test_a_timestamp_without_zone_and_types_that_spark_lacks_have_names():
    assert sql_name(pa.timestamp("us")) == "timestamp_ntz"
    assert sql_name(pa.uint16()) == "uint16"
