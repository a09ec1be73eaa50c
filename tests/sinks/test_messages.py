"""Messages as plain consumers get them: tombstones, chosen partitions, keys."""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from itertools import islice

import pulsar
import pyarrow as pa
import pytest

from eos.errors import ConfigurationError, InputError
from eos.protocol import State
from eos.wire.batch import Hashing, partitions_for_keys
from tests.support.admin import create_partitioned
from tests.support.judge import drain, quiet_client
from tests.transport.scripted import wait_until


@pytest.fixture
def topic(name) -> str:
    return f"persistent://public/default/{name}"


@pytest.fixture
def seen(pulsar_standalone, topic):
    return lambda: drain(pulsar_standalone.service_url, topic)


@pytest.fixture
def plain(pulsar_standalone):
    client = quiet_client(pulsar_standalone.service_url)
    yield client
    client.close()


# pulsar-client shows a message that compaction removed as one without a key (measured).
@pytest.mark.parametrize(("batching", "left"), [("by_key", {}), ("by_size", {"": b""})])
def test_a_tombstone_removes_its_key_from_a_compacted_topic(
    spark, make_sink, pulsar_standalone, topic, plain, batching, left
):
    sink = make_sink(null_values="tombstone", batching=batching)
    columns = "value string, key string"
    first, then = [("a1", "a"), ("b1", "b"), ("c1", "c")], [(None, "a"), ("c2", "c")]
    sink.write(spark.createDataFrame(first, columns), epoch="0")
    assert sink.write(spark.createDataFrame(then, columns), epoch="1").records == 2
    tenant_topic = topic.removeprefix("persistent://")
    pulsar_standalone.admin("PUT", f"/v2/persistent/{tenant_topic}/compaction")
    deadline = time.monotonic() + 60
    while True:
        status = pulsar_standalone.admin("GET", f"/v2/persistent/{tenant_topic}/compaction")
        if status["status"] == "SUCCESS" or time.monotonic() > deadline:
            break
        time.sleep(0.2)
    assert status["status"] == "SUCCESS"
    reader = plain.create_reader(topic, pulsar.MessageId.earliest, is_read_compacted=True)
    found = {}
    while reader.has_message_available():
        message = reader.read_next(timeout_millis=20_000)
        found[message.partition_key()] = message.data()
    assert found == {"c": b"c2", "b": b"b1", **left}


def test_a_null_value_is_refused_by_default(spark, make_sink, log, seen):
    null = spark.sql("SELECT CAST(NULL AS STRING) AS value, 'k' AS key")
    with pytest.raises(InputError, match='null_values="tombstone"'):
        make_sink().write(null, epoch="a")
    keyless = spark.sql("SELECT CAST(NULL AS STRING) AS value")
    with pytest.raises(InputError, match="which has no key"):
        make_sink(null_values="tombstone").write(keyless, epoch="a")
    assert log()[-1].state is State.ABORTED
    assert seen() == []


def test_a_row_goes_to_the_partition_that_it_names_else_to_its_keys(
    spark, make_sink, pulsar_standalone, name, seen
):
    create_partitioned(pulsar_standalone.admin_url, name, 4)
    rows = """SELECT * FROM VALUES ('0', 'k', 3), ('1', 'k', CAST(NULL AS INT)), ('2', 'k', 0),
        ('3', CAST(NULL AS STRING), 2) AS t(value, key, partition)"""
    make_sink().write(spark.sql(rows), epoch="a")
    where = {int(m.value): int(m.topic.rpartition("-")[2]) for m in seen()}
    assert (where[0], where[2], where[3]) == (3, 0, 2)
    assert where[1] == ord("k") % 4
    make_sink().write(spark.sql("SELECT '9' AS value, 1L AS partition"), epoch="b")
    assert {m.topic[-1] for m in seen() if m.value == b"9"} == {"1"}


@pytest.mark.parametrize("partition", [-1, 4, 2**40])
def test_a_missing_partition_is_refused(spark, make_sink, pulsar_standalone, name, seen, partition):
    create_partitioned(pulsar_standalone.admin_url, name, 4)
    df = spark.range(3).selectExpr("'x' AS value", f"IF(id = 2, {partition}L, 0L) AS partition")
    with pytest.raises(InputError, match=rf"'partition' is {partition} in row \d; .* 4 partitions"):
        make_sink().write(df, epoch="a")
    assert seen() == []


def test_the_column_partition_must_have_numbers(spark, make_sink):
    df = spark.sql("SELECT 'x' AS value, '1' AS partition")
    with pytest.raises(InputError, match="'partition' is string: it must be a whole number"):
        make_sink().write(df, epoch="a")


def test_murmur3_routes_keys_differently(spark, make_sink, pulsar_standalone, name, seen):
    create_partitioned(pulsar_standalone.admin_url, name, 7)
    keys = [f"key-{n}é" for n in range(60)]
    df = spark.createDataFrame([("x", key) for key in keys], "value string, key string")
    make_sink(hashing="murmur3").write(df, epoch="a")
    where = {message.key: int(message.topic.rpartition("-")[2]) for message in seen()}
    assert [where[key] for key in keys] == murmur3(keys, 7)
    assert [where[key] for key in keys] != partitions_for_keys(pa.array(keys), 7).tolist()


def murmur3(keys: list[str], count: int) -> list[int]:
    return partitions_for_keys(pa.array(keys), count, hashing=Hashing.MURMUR3).tolist()


def test_by_key_each_key_goes_to_one_of_two_key_shared_consumers_in_order(
    spark, make_sink, topic, plain
):
    consumers = [
        plain.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.KeyShared) for _ in range(2)
    ]
    sink = make_sink(batching="by_key")
    for epoch in range(3):
        df = spark.range(0, 1000, 1, 2).selectExpr(
            f"CONCAT({epoch} * 1000 + id, '') AS value", "CONCAT('k', id % 20) AS key"
        )
        assert sink.write(df, epoch=str(epoch)).records == 1000
    got = [defaultdict(list), defaultdict(list)]

    def receive_next() -> bool:
        """Receive from each consumer the messages of a moment."""
        some = False
        for index, consumer in enumerate(consumers):
            with contextlib.suppress(pulsar.Timeout):
                while True:
                    message = consumer.receive(timeout_millis=200)
                    got[index][message.partition_key()].append(int(message.data()))
                    consumer.acknowledge(message)
                    some = True
        return some

    def count() -> int:
        return sum(len(values) for one in got for values in one.values())

    wait_until(lambda: receive_next() and count() >= 3000)
    assert not receive_next()
    assert not got[0].keys() & got[1].keys()
    assert got[0].keys()
    assert got[1].keys()
    values = [value for one in got for values in one.values() for value in values]
    assert sorted(values) == list(range(3000))
    for one in got:
        for values in one.values():
            for half in (0, 1):  # two tasks: each has its own order
                mine = [v for v in values if (v % 1000 >= 500) is bool(half)]
                assert mine == sorted(mine)


def test_by_size_an_entry_has_rows_of_several_keys(spark, make_sink, client, topic):
    """The broker gives a whole entry to one consumer: that is why ``by_key`` exists."""
    df = spark.range(0, 100, 1, 1).selectExpr("'x' AS value", "CONCAT('k', id % 5) AS key")
    make_sink().write(df, epoch="a")
    make_sink(batching="by_key").write(df, epoch="b")
    with client.entry_reader(topic) as reader:
        entries = list(islice(reader.read(time.monotonic() + 10), 6))
    assert [entry.num_messages for entry in entries] == [100, 20, 20, 20, 20, 20]
    assert [entry.metadata.partition_key for entry in entries] == [
        None, b"k0", b"k1", b"k2", b"k3", b"k4"
    ]  # fmt: skip


def test_a_key_that_exceeds_the_limit_when_repeated_is_refused(spark, make_sink, log):
    """With ``by_key`` the entry's metadata repeats it, which the broker counts, too."""
    limit = 5 * 1024 * 1024
    df = spark.sql(f"SELECT 'x' AS value, REPEAT('k', {limit} - 3000) AS key")
    make_sink().write(df, epoch="a")
    with pytest.raises(InputError, match="limit"):
        make_sink(batching="by_key").write(df, epoch="b")


@pytest.mark.parametrize(
    "option", [{"hashing": "md5"}, {"batching": "key"}, {"null_values": "keep"}]
)
def test_unknown_values_of_options_are_refused(make_sink, option):
    with pytest.raises(ConfigurationError, match=next(iter(option))):
        make_sink(**option)


def test_rows_ready_in_arrow_may_have_nulls_of_any_kind(spark, make_sink, seen):
    table = pa.table({"value": pa.array(["a", None]), "key": pa.array(["k", "l"])})
    df = spark.createDataFrame(table.to_pandas())
    make_sink(null_values="tombstone").write(df, epoch="a")
    assert [(m.key, m.value) for m in sorted(seen(), key=lambda m: m.key)] == [
        ("k", b"a"),
        ("l", b""),
    ]


def test_delayed_delivery_is_refused_by_name(spark, make_sink):
    df = spark.sql("SELECT 'x' AS value, current_timestamp() AS deliver_at")
    with pytest.raises(InputError, match="Delayed delivery does not work"):
        make_sink().write(df, epoch="a")
    df = df.withColumnRenamed("deliver_at", "__deliver_after")
    with pytest.raises(InputError, match="Delayed delivery does not work"):
        make_sink(schema="json").write(df, epoch="a")
