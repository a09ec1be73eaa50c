"""Values as columns: by registered schemas, by the user's, and values that can't be read."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal

import pulsar
import pytest
from pulsar.schema import AvroSchema, Integer, JsonSchema, Record, String

from eos import PulsarSink


class Order(Record):
    """A record of another producer."""

    id = Integer(required=True)
    name = String()


class LaterOrder(Record):
    """With one more field."""

    id = Integer(required=True)
    name = String()
    note = String(required_default=True)


class Empty(Record):
    """Without fields."""


@pytest.fixture
def write(spark, pulsar_standalone, name, tmp_path):
    """Writes a DataFrame by the sink, with a schema."""

    def write(df, schema, topic=name):
        sink = PulsarSink(
            service_url=pulsar_standalone.service_url,
            topic=topic,
            commit_log=str(tmp_path / "log"),
            sink_id=f"s-{topic}-{schema}",
            create_topics=True,
            schema=schema,
        )
        try:
            sink.write(df, epoch="0")
        finally:
            sink.close()

    return write


@pytest.fixture
def produce(pulsar_standalone, name):
    """Sends values by ``pulsar-client``."""

    def produce(*values, schema, topic=name):
        client = pulsar.Client(pulsar_standalone.service_url)
        try:
            producer = client.create_producer(topic, schema=schema)
            for value in values:
                producer.send(value)
        finally:
            client.close()

    return produce


EVERYTHING = """
    SELECT id, 'name' || id AS name, ARRAY(id, NULL) AS numbers,
      CAST(id AS DECIMAL(10, 2)) AS price, NAMED_STRUCT('a', id, 'b', 'x') AS inner,
      MAP('k', id) AS counts, id % 2 = 0 AS even, IF(id = 1, NULL, id / 2) AS half,
      CAST('raw' AS BINARY) AS raw, DATE '2026-11-22' AS day,
      TIMESTAMP '2026-11-22 10:00:00.123456' AS at
    FROM RANGE(3)"""


@pytest.mark.parametrize("schema", ["avro", "json"])
def test_rows_of_a_sink_are_read_unchanged(spark, load, write, schema):
    written = spark.sql(EVERYTHING)
    write(written, schema)
    read = load(schema="auto")
    if schema == "json":  # dates and times are text in JSON
        read = read.selectExpr("* EXCEPT (day, at)", "DATE(day)", "TIMESTAMP(at)")
    types = [(field.name, field.dataType.simpleString()) for field in written.schema]
    assert [(field.name, field.dataType.simpleString()) for field in read.schema] == types
    assert sorted(read.collect()) == sorted(written.collect())
    row = read.where("id = 2").first()
    assert (row.day, row.price) == (date(2026, 11, 22), Decimal("2.00"))
    assert row.at.astimezone(UTC) == datetime(2026, 11, 22, 10, 0, 0, 123456, UTC)


@pytest.mark.parametrize("schema", ["string", "int64", "double", "boolean", "date", "timestamp"])
def test_single_values_are_a_column(spark, load, write, schema):
    column = {
        "string": "STRING(id)",
        "int64": "id",
        "double": "id / 3",
        "boolean": "id = 1",
        "date": "DATE_ADD(DATE '2026-11-22', INT(id))",
        "timestamp": "TIMESTAMP '2026-11-22 10:00:00.123'",
    }[schema]
    written = spark.range(3).selectExpr(f"{column} AS value")
    write(written, schema)
    for chosen in ("auto", schema):
        read = load(schema=chosen)
        assert read.schema["value"].dataType == written.schema["value"].dataType
        assert sorted(read.collect()) == sorted(written.collect())


def test_pairs_are_two_columns(spark, load, write):
    written = spark.range(3).selectExpr("id AS key", "NAMED_STRUCT('a', id, 'b', 'x') AS value")
    write(written, "key_value")
    assert sorted(load(schema="auto").collect()) == sorted(written.collect())


@pytest.mark.parametrize("make", [AvroSchema, JsonSchema])
def test_older_versions_are_read_by_the_newest_one(load, produce, make):
    produce(Order(id=1, name="a"), schema=make(Order))
    produce(LaterOrder(id=2, name=None, note="n"), schema=make(LaterOrder))
    produce(Order(id=3, name="c"), schema=make(Order))
    rows = {row.id: (row.name, row.note) for row in load(schema="auto").collect()}
    assert rows == {1: ("a", None), 2: (None, "n"), 3: ("c", None)}


def test_the_users_schema_is_used(load, produce):
    produce(Order(id=1, name="a"), schema=AvroSchema(Order))
    fields = [{"name": "id", "type": "long"}, {"name": "extra", "type": "string", "default": "e"}]
    mine = json.dumps({"type": "record", "name": "Mine", "fields": fields})
    assert load(schema="avro", schemaDefinition=mine).collect() == [(1, "e")]
    fields[1] = {"name": "extra", "type": "string"}
    mine = json.dumps({"type": "record", "name": "Mine", "fields": fields})
    with pytest.raises(Exception, match="can't be read with your schema"):
        load(schema="avro", schemaDefinition=mine)


def test_metadata_and_fields_can_be_chosen(load, produce, name):
    produce(Order(id=1, name="a"), schema=AvroSchema(Order))
    columns = load(schema="auto", metadata=True).columns
    assert columns[:3] == ["id", "name", "__key"]
    topic = f"persistent://public/default/{name}"
    assert load("__topic string, id int", schema="auto").collect() == [(topic, 1)]
    with pytest.raises(Exception, match="Column 'id' is of type int, not string"):
        load("id string", schema="auto").collect()


def test_a_record_without_fields_is_a_row(load, produce):
    produce(Empty(), Empty(), schema=AvroSchema(Empty))
    assert load(schema="auto").collect() == [(), ()]
    assert load(schema="auto").count() == 2


def test_a_topic_without_a_schema_gives_bytes(load, send):
    send(b"a")
    assert load(schema="auto").collect() == [(b"a",)]


@pytest.fixture
def malformed(produce, send):
    """Two orders, and between them a value that is not one, but has the schema's version."""
    produce(Order(id=1, name="a"), schema=AvroSchema(Order))
    send(b"\x02")
    produce(Order(id=3, name="c"), schema=AvroSchema(Order))


def test_a_malformed_value_is_an_error(load, malformed):
    with pytest.raises(Exception, match=r"The message \d+:\d+:-?\d+ of .* can't be read: "):
        load(schema="auto").collect()


def test_permissive_keeps_malformed_values_with_the_reason(load, malformed):
    first, second, third = load(schema="auto", mode="PERMISSIVE").collect()
    assert (first.id, first["__malformedValue"], first["__malformedReason"]) == (1, None, None)
    assert (second.id, second.name, bytes(second["__malformedValue"])) == (None, None, b"\x02")
    assert second["__malformedReason"]
    assert third.id == 3


def test_dropmalformed_leaves_malformed_messages_out(load, malformed):
    rows = load(schema="auto", mode="dropmalformed", metadata=True).collect()
    assert [row.id for row in rows] == [1, 3]


def test_a_query_continues_with_another_mode(run, malformed):
    with pytest.raises(Exception, match="can't be read"):
        run(schema="auto")
    assert run(schema="auto", mode="dropmalformed", column="id") == {0: [1, 3]}


def test_several_topics_must_have_one_schema(load, produce, name):
    a, b = f"{name}-a", f"{name}-b"
    both = {"topic": None, "topics": f"{a},{b}", "schema": "auto"}
    produce(Order(id=1, name="a"), schema=AvroSchema(Order), topic=a)
    produce(Order(id=2, name="b"), schema=AvroSchema(Order), topic=b)
    assert sorted(load(**both).collect()) == [(1, "a"), (2, "b")]
    produce(LaterOrder(id=3, name="b", note="n"), schema=AvroSchema(LaterOrder), topic=b)
    with pytest.raises(Exception, match="The topics have different schemas"):
        load(**both)
    raw = load(**both, allowDifferentTopicSchemas=True)
    assert raw.schema.simpleString() == "struct<value:binary>"
    assert raw.count() == 3


def test_tombstones_are_rows_of_nulls(load, produce, client, name):
    produce(Order(id=1, name="a"), schema=AvroSchema(Order))
    client.entry_producer(name).send(None, key="k").result(timeout=20)
    assert load(schema="auto").collect() == [(1, "a"), (None, None)]
