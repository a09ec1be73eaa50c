"""Batch reads from a real broker through real Spark."""

from __future__ import annotations

import json

import pulsar
import pytest

from tests.support.admin import create_partitioned


def values(df):
    return sorted(bytes(row["value"]) for row in df.select("value").collect())


def numbered(count):
    return sorted(b"%d" % n for n in range(count))


def test_all_committed_messages_of_all_partitions_are_read(
    load, send, client, name, pulsar_standalone
):
    create_partitioned(pulsar_standalone.admin_url, name, 3)
    for n in range(3):
        send(*(b"%d" % (n + 3 * k) for k in range(5)), topic=f"{name}-partition-{n}")
    producer = client.entry_producer(f"{name}-partition-1")
    for end in ("commit", "abort"):
        txn = client.transaction()
        producer.send(end.encode(), txn=txn).result(timeout=20)
        getattr(txn, end)()
    open_txn = client.transaction()
    producer.send(b"open", txn=open_txn).result(timeout=20)
    df = load()
    assert df.schema.simpleString() == "struct<value:binary>"
    assert values(df) == sorted([*numbered(15), b"commit"])
    open_txn.abort()


def test_metadata_has_the_names_and_types_of_streamnatives_connector(load, client, name):
    producer = client.entry_producer(name, create=True)
    sent = producer.send(b"v", key="k", properties={"p": "q"}, event_time_ms=1_700_000_000_001)
    at = sent.result(timeout=20)
    producer.send(b"plain").result(timeout=20)
    df = load(metadata=True)
    types = {field.name: field.dataType.simpleString() for field in df.schema}
    assert types == {
        "value": "binary",
        "__key": "binary",
        "__topic": "string",
        "__messageId": "binary",
        "__publishTime": "timestamp",
        "__eventTime": "timestamp",
        "__messageProperties": "map<string,string>",
        "__partition": "int",
        "__schemaVersion": "bigint",
        "__sequenceId": "bigint",
        "__keyIsBinary": "boolean",
        "__orderingKey": "binary",
        "__isTombstone": "boolean",
    }
    first, second = df.collect()
    assert (first["value"], first["__key"], first["__messageProperties"]) == (
        b"v",
        b"k",
        {"p": "q"},
    )
    assert first["__topic"] == f"persistent://public/default/{name}"
    assert first["__eventTime"].timestamp() == 1_700_000_000.001
    message_id = pulsar.MessageId.deserialize(bytes(first["__messageId"]))
    assert (message_id.ledger_id(), message_id.entry_id()) == at.place
    assert message_id.batch_index() == 0
    assert second["__key"] is None
    assert second["__eventTime"] is None
    assert second["__messageProperties"] == {}


def test_a_schema_chooses_columns_and_is_checked(load, send):
    send(b"a")
    assert load("__partition int, value binary").collect() == [(-1, b"a")]
    with pytest.raises(Exception, match="Column 'key' does not exist"):
        load("key binary").collect()
    with pytest.raises(Exception, match="is of type binary, not string"):
        load("value string").collect()
    with pytest.raises(Exception, match="'value' is declared NOT NULL"):
        load("value binary NOT NULL").collect()


def test_starting_offsets_are_inclusive_and_ending_offsets_exclusive(load, send, name):
    ids = send(*(b"%d" % n for n in range(6)))
    topic = f"persistent://public/default/{name}"

    def at(n: int) -> str:
        return json.dumps({topic: f"{ids[n].ledger}:{ids[n].entry}"})

    assert values(load(startingOffsets=at(2))) == numbered(6)[2:]
    assert values(load(endingOffsets=at(2))) == numbered(6)[:2]
    assert values(load(startingOffsets=at(2), endingOffsets=at(4))) == numbered(6)[2:4]
    assert values(load(startingOffsets=at(4), endingOffsets=at(4))) == []
    with pytest.raises(Exception, match=r"the start, \d+:4, is after the end, \d+:2"):
        load(startingOffsets=at(4), endingOffsets=at(2)).collect()
    with pytest.raises(Exception, match=r"the start, 2, is after the end, 1\."):
        load(startingTime=2, endingTime=1).collect()
    assert values(load(startingOffsets="latest")) == []
    beyond = json.dumps({topic: f"{ids[5].ledger}:1000"})
    assert values(load(endingOffsets=beyond)) == numbered(6)


def test_an_empty_topic_has_no_rows(load, client, name):
    client.create_unpartitioned(name)
    assert load().count() == 0


def test_an_unknown_topic_is_an_error_and_is_not_created(load, client, name):
    with pytest.raises(Exception, match="TopicNotFound"):
        load().collect()
    assert not client.exists(name)


def test_sql_reads_a_view(spark, send, options, name):
    send(b"a", b"b")
    view = "v_" + name.replace("-", "_")
    spark.sql(
        f"CREATE TEMPORARY VIEW {view} USING pulsar OPTIONS "
        f"(serviceUrl '{options['serviceUrl']}', topic '{name}')"
    )
    assert spark.sql(f"SELECT count(*) FROM {view}").first()[0] == 2
