"""Bad input and bad environments: one clear error, no readable rows, and the reason in the log."""

from __future__ import annotations

import time

import pytest

from eos.errors import (
    ConfigurationError,
    ConnectionLost,
    InputError,
    MessageTooLarge,
    TopicNotFound,
    TransactionsDisabled,
)
from eos.testing import PulsarStandalone
from tests.support.judge import drain

BAD = {
    "no value": ("'x' AS body", InputError, "Column 'value' is missing"),
    "value of a wrong type": ("1 AS value", InputError, "'value' is int"),
    "key of a wrong type": ("'x' AS value, 1 AS key", InputError, "'key' is int"),
    "an unknown column": ("'x' AS value, 1 AS colour", InputError, "'colour' are unknown"),
    "a column twice": ("'x' AS value, 'y' AS value", InputError, "Two columns are named 'value'"),
    "null value": ("CAST(NULL AS STRING) AS value", InputError, "'value' is null in row 0"),
    "too large": ("repeat('x', 6000000) AS value", MessageTooLarge, "Row 0 takes 6000"),
    "time without zone": (
        "'x' AS value, TIMESTAMP_NTZ '2026-01-01 00:00:00' AS event_time",
        InputError,
        "without time zone",
    ),
    "time of a wrong type": ("'x' AS value, 'now' AS event_time", InputError, "'event_time' is"),
    "time before 1970": ("'x' AS value, -1L AS event_time", InputError, "event_time"),
    "properties of a wrong type": (
        "'x' AS value, map('a', 1) AS properties",
        InputError,
        "'properties' is map<string,int>",
    ),
}

OF_ROWS = {"null value", "too large", "time before 1970"}
"""What only shows in the rows; the others are columns, and no transaction is begun for them."""


@pytest.mark.parametrize("case", BAD)
def test_bad_rows_are_refused_with_the_transaction_aborted_and_the_reason_logged(
    spark, make_sink, log, case, pulsar_standalone, name
):
    columns, error, text = BAD[case]
    with pytest.raises(error) as caught:
        make_sink().write(spark.sql(f"SELECT {columns}"), epoch="a")
    assert text in str(caught.value)
    records = [record for record in log() if record.epoch]
    wanted = ["OPEN", "ABORTING", "ABORTED"] if case in OF_ROWS else []
    assert [record.state for record in records] == wanted
    for record in records[-1:]:
        assert str(record.reason).startswith("INPUT: ")
        assert text in str(record.reason)


def test_of_many_good_rows_and_one_bad_none_is_readable(spark, make_sink, pulsar_standalone, name):
    df = spark.range(50000).selectExpr("IF(id = 49999, NULL, cast(id as string)) AS value")
    with pytest.raises(InputError, match="Spark partition 1"):
        make_sink().write(df, epoch="a")
    assert drain(pulsar_standalone.service_url, f"persistent://public/default/{name}") == []


def test_an_unknown_topic_is_refused_and_not_created(spark, make_sink, log, client, name):
    sink = make_sink(create_topics=False)
    with pytest.raises(TopicNotFound, match="create_topics=True"):
        sink.write(spark.sql("SELECT 'x' AS value"), epoch="a")
    with pytest.raises(TopicNotFound):
        client.partition_count(name)
    assert [r.state for r in log() if r.epoch] == ["OPEN", "ABORTING", "ABORTED"]
    assert make_sink().write(spark.sql("SELECT 'x' AS value"), epoch="a").records == 1


def test_a_missing_namespace_is_named(spark, make_sink):
    sink = make_sink(topic="persistent://public/nowhere/t")
    with pytest.raises(TopicNotFound, match=r"public/nowhere"):
        sink.write(spark.sql("SELECT 'x' AS value"), epoch="a")


def test_a_broker_without_transactions_is_an_error_with_the_settings(spark, make_sink):
    with PulsarStandalone(transactions=False) as broker:
        sink = make_sink(service_url=broker.service_url, resolve_timeout_s=30)
        with pytest.raises(TransactionsDisabled, match="transactionCoordinatorEnabled=true"):
            sink.write(spark.sql("SELECT 'x' AS value"), epoch="a")


def test_an_unreachable_broker_is_reported_in_bounded_time(spark, make_sink):
    sink = make_sink(service_url="pulsar://127.0.0.1:1", resolve_timeout_s=2)
    started = time.monotonic()
    with pytest.raises(ConnectionLost, match=r"127\.0\.0\.1:1.*service URL"):
        sink.write(spark.sql("SELECT 'x' AS value"), epoch="a")
    assert time.monotonic() - started < 90


def test_speculation_is_refused(spark, make_sink):
    df = spark.sql("SELECT 'x' AS value")
    conf = spark.sparkContext._jsc.sc().conf()  # the live one; getConf() copies it
    conf.set("spark.speculation", "true")
    try:
        with pytest.raises(ConfigurationError, match=r"spark\.speculation=false"):
            make_sink().write(df, epoch="a")
    finally:
        conf.remove("spark.speculation")


def test_a_call_outside_of_a_stream_names_write(spark, make_sink):
    with pytest.raises(ConfigurationError, match=r"sink\.write"):
        make_sink()(spark.sql("SELECT 'x' AS value"), 0)
