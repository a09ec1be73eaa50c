"""Batch writes through real Spark: columns, routing, keys of epochs."""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from eos.errors import Fenced
from eos.pulsar.part import pulsar_part
from eos.wire.batch import partitions_for_keys
from tests.support.admin import create_partitioned
from tests.support.judge import drain


@pytest.fixture
def seen(pulsar_standalone, name):
    return lambda: drain(pulsar_standalone.service_url, f"persistent://public/default/{name}")


def test_rows_are_written_once_and_a_rerun_of_the_key_is_skipped(spark, make_sink, seen, log):
    df = spark.range(1000).selectExpr("cast(id as string) AS value")
    first = make_sink().write(df, epoch="2026-11-20")
    again = make_sink().write(df, epoch="2026-11-20")
    assert (first.status, first.records, first.bytes) == ("written", 1000, 2890)
    assert (again.status, again.records, again.txn) == (
        "skipped",
        1000,
        first.txn,
    )
    assert sorted(int(m.value) for m in seen()) == list(range(1000))
    assert [r.state for r in log() if r.epoch] == ["OPEN", "PREPARED", "COMMITTED"]


def test_a_committed_key_is_skipped_by_any_object(spark, make_sink, seen, caplog):
    df = spark.range(50).selectExpr("cast(id as string) AS value")
    sink, other = make_sink(), make_sink()
    sink.write(df, epoch="a")
    caplog.set_level(logging.WARNING, "eos.sinks._progress")
    again = sink.write(df.limit(1), epoch="a")
    assert (again.status, again.records, again.attempts) == ("skipped", 50, 0)
    (warning,) = [one.message for one in caplog.records if one.name == "eos.sinks._progress"]
    assert "written before (rows: 50): nothing is written now" in warning
    other.write(df, epoch="b")
    # It has lost its claim: committed keys are still skipped, others are refused.
    assert [sink.write(df, epoch=key).status for key in "ab"] == ["skipped"] * 2
    with pytest.raises(Fenced):
        sink.write(df, epoch="c")
    assert other.write(df, epoch="c").status == "written"
    assert len(seen()) == 150


def test_one_of_two_concurrent_writes_of_a_key_writes(spark, make_sink, seen):
    df = spark.range(0, 50, 1, 2).selectExpr("cast(id as string) AS value")
    shared = make_sink()
    sinks = [shared, shared, make_sink(), make_sink()]
    gate = threading.Barrier(len(sinks))

    def write(sink) -> str:
        gate.wait()
        try:
            return sink.write(df, epoch="a").status
        except Fenced:
            return "fenced"

    with ThreadPoolExecutor(len(sinks)) as pool:
        outcomes = list(pool.map(write, sinks))
    assert outcomes.count("written") <= 1, outcomes
    assert make_sink().write(df, epoch="a").status in ("written", "skipped")
    assert len(seen()) == 50


def test_all_columns_are_kept(spark, make_sink, seen):
    df = spark.sql(
        """SELECT * FROM VALUES
        (X'00FF', 'k1', TIMESTAMP '2026-11-20 12:00:00.123', map('a', '1', 'b', ''), 'o1'),
        (X'', CAST(NULL AS STRING), CAST(NULL AS TIMESTAMP), CAST(NULL AS MAP<STRING,STRING>),
         CAST(NULL AS STRING))
        AS t(value, key, event_time, properties, ordering_key)"""
    )
    make_sink().write(df, epoch="a")
    full, bare = sorted(seen(), key=lambda m: m.value, reverse=True)
    assert (full.value, full.key, full.properties) == (b"\x00\xff", "k1", {"a": "1", "b": ""})
    assert (full.event_time_ms, full.ordering_key) == (1795176000123, "o1")
    assert (bare.value, bare.key, bare.properties, bare.event_time_ms) == (b"", "", {}, 0)
    assert bare.ordering_key == ""


@pytest.mark.parametrize("compression", ["lz4", "zlib", "zstd", "snappy"])
def test_compressed_entries_are_readable(spark, make_sink, seen, log, compression):
    df = spark.range(2000).selectExpr("concat('a value like others ', id) AS value", "'k' AS key")
    make_sink(compression=compression).write(df, epoch="a")
    messages = seen()
    assert {m.value for m in messages} == {b"a value like others %d" % id for id in range(2000)}
    # The figures count what readers see, not what the broker stores.
    assert log()[-1].bytes == sum(len(m.value) + len(m.key) for m in messages)


def test_a_timestamp_is_in_the_sessions_time_zone(spark, make_sink, seen):
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        df = spark.sql("SELECT 'x' AS value, TIMESTAMP '2026-11-20 21:00:00' AS event_time")
        make_sink().write(df, epoch="a")
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert [m.event_time_ms for m in seen()] == [1795176000000]


def test_event_times_in_milliseconds_are_kept(spark, make_sink, seen):
    make_sink().write(spark.sql("SELECT 'x' AS value, 1234567890123L AS event_time"), epoch="a")
    assert [m.event_time_ms for m in seen()] == [1234567890123]


def test_keys_are_routed_as_by_the_java_client_and_keep_their_order(
    spark, make_sink, seen, pulsar_standalone, name
):
    create_partitioned(pulsar_standalone.admin_url, name, 5)
    df = spark.range(0, 2000, 1, 2).selectExpr("concat('k', id % 97) AS key", "string(id) AS value")
    make_sink().write(df, epoch="a")
    messages = seen()
    assert sorted(int(m.value) for m in messages) == list(range(2000))
    expected = partitions_for_keys(pa.array([m.key for m in messages]), 5)
    assert [int(m.topic.rsplit("-", 1)[1]) for m in messages] == list(expected)
    # A Spark partition's rows of a key stay in order; partition 0 has ids below 1000.
    by_key_and_task = defaultdict(list)
    for m in messages:
        by_key_and_task[m.key, int(m.value) < 1000].append(int(m.value))
    assert all(ids == sorted(ids) for ids in by_key_and_task.values())


def test_rows_without_a_key_stay_together_and_tasks_are_spread(
    spark, make_sink, seen, pulsar_standalone, name, log
):
    create_partitioned(pulsar_standalone.admin_url, name, 4)
    df = spark.range(0, 400, 1, 4).selectExpr("cast(id as string) AS value")
    make_sink().write(df, epoch="a")
    by_topic = defaultdict(set)
    for m in seen():
        by_topic[m.topic].add(int(m.value) // 100)
    assert sorted(by_topic.values(), key=min) == [{0}, {1}, {2}, {3}]
    assert [p.records for p in pulsar_part(log()[-1]).partitions] == [100] * 4


@pytest.mark.parametrize("rows", ["value = 'none'", "false"], ids=["all filtered", "no plan"])
def test_an_epoch_without_rows_ends_as_empty(spark, make_sink, log, rows):
    df = spark.range(10).selectExpr("cast(id as string) AS value").where(rows)
    assert make_sink().write(df, epoch="a").records == 0
    assert [r.state for r in log() if r.epoch] == ["OPEN", "ABORTING", "EMPTY"]
    assert make_sink().write(df, epoch="a").status == "skipped"


def test_figures_in_the_log_match_the_readable_rows(spark, make_sink, seen, log):
    df = spark.range(300).selectExpr("cast(id as string) AS value", "concat('k', id) AS key")
    make_sink().write(df, epoch="a")
    record, messages = log()[-1], seen()
    assert record.records == len(messages)
    assert record.bytes == sum(len(m.value) + len(m.key) for m in messages)
    assert {m.producer for m in messages} == {
        p for part in pulsar_part(record).partitions for p in part.producers
    }
