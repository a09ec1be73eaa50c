"""Arrow batches become the same messages as DataFrames, compared with Spark's own SQL."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from eos.errors import InputError
from eos.schemas import AvroSchema, JsonSchema, KeyValueSchema
from eos.sinks._arrow_columns import message_columns
from eos.sinks.dataframe_columns import Layout, layout_of, select_columns

ROWS = """
SELECT * FROM VALUES
  (1, TIMESTAMP'2026-11-23 10:00:00.123456', TIMESTAMP_NTZ'2026-11-23 10:00:00', DATE'1969-12-31',
   CAST(12.50 AS DECIMAL(10,2)), X'00ff', 'a "quoted" ä\\n', 1.5D, MAP('k', 1, 'l', NULL),
   ARRAY(1, NULL), NAMED_STRUCT('x', TRY_CAST('1' AS INT), 'y', CAST(NULL AS INT)), true),
  (2, TIMESTAMP'1969-12-31 23:59:59.999999', NULL, NULL, NULL, NULL, NULL, DOUBLE('NaN'), NULL,
   NULL, NULL, NULL),
  (3, TIMESTAMP'0001-01-01 00:00:00', NULL, DATE'9999-12-31', -0.01, X'', '', DOUBLE('-Infinity'),
   MAP(), ARRAY(), NULL, false)
AS t(i, at, local, day, price, raw, text, number, map, list, nested, flag)
"""


def both(df, **options):
    """Return Spark's columns of ``df``, and those made of its batches."""
    layout = layout_of(df.schema, **options)
    batches = [message_columns(batch, layout) for batch in df.toArrow().to_batches()]
    ours = pa.Table.from_batches(batches)
    theirs = select_columns(df, **options).rows.toArrow()
    return ours, theirs


def test_columns_equal_those_of_sparks_sql(spark):
    df = spark.sql(
        """SELECT CAST(id AS STRING) AS value, CAST(CAST(id AS STRING) AS BINARY) AS key,
        timestamp_micros(id * 1234567 - 5000001) AS event_time, MAP('a', 'b') AS properties,
        'o' AS ordering_key, CAST(id AS TINYINT) AS partition, 'orders' AS topic
        FROM range(5)"""
    )
    ours, theirs = both(df, names_topics=True)
    assert ours.to_pylist() == theirs.to_pylist()
    ours, theirs = both(df.drop("topic", "event_time").selectExpr("*", "NULL + 1L AS event_time"))
    assert ours.to_pylist() == theirs.to_pylist()
    assert "topic" not in ours.schema.names


@pytest.mark.parametrize("schema", [JsonSchema(), AvroSchema()], ids=["json", "avro"])
def test_records_equal_those_of_sparks_sql(spark, schema):
    rows = spark.sql(ROWS)
    df = rows.selectExpr("*", "text AS __key", "at AS __event_time")
    ours, theirs = both(df, schema=schema)
    assert ours.drop(["value"]).to_pylist() == theirs.drop(["value"]).to_pylist()
    if isinstance(schema, JsonSchema):
        pairs = zip(ours["value"].to_pylist(), theirs["value"].to_pylist(), strict=True)
        for mine, sparks in pairs:
            assert json.loads(mine) == json.loads(sparks)
            assert list(json.loads(mine)) == list(json.loads(sparks))
    else:
        assert str(ours["value"].to_pylist()) == str(theirs["value"].to_pylist())


def test_pairs_have_their_own_key_and_value(spark):
    df = spark.sql("SELECT id AS key, NAMED_STRUCT('a', id) AS value FROM range(3)")
    ours, theirs = both(df, schema=KeyValueSchema(value=JsonSchema()))
    assert ours.to_pylist() == theirs.to_pylist()


def test_text_that_is_not_utf8_does_not_become_json():
    data = pa.array([b"a\xff"])
    odd = pa.Array.from_buffers(pa.string(), 1, data.buffers())
    layout = Layout({}, ("s",), {}, None, ("value",), ())
    with pytest.raises(InputError, match="Field 's' has text that is not UTF-8"):
        message_columns(pa.record_batch([odd], names=["s"]), layout)
