"""Time windows, and filters of queries, on topics whose publish times are in disorder."""

from __future__ import annotations

import random
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pulsar
import pytest
from pyspark.sql import DataFrame, functions

from eos.client import PulsarClient
from eos.ids import EntryPlace
from eos.sources._epoch_planner import EpochPlanner
from eos.sources._source_options import SourceOptions
from eos.sources._wanted import ALL, Times, Wanted
from tests.support.judge import quiet_client
from tests.support.spark_releases import HAS_FILTERS

BEGIN_MS = 1_700_000_000_000
SLACK_MS = 2_000


def at(time_ms: float) -> datetime:
    return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=time_ms)


@pytest.fixture
def times_ms(
    client: PulsarClient, name: str, pulsar_standalone, monkeypatch: pytest.MonkeyPatch
) -> dict[bytes, int]:
    """Sends 300 messages, each up to ``SLACK_MS`` older than one before it; returns what
    pulsar-client says of their values and publish times, in their order."""
    chance = random.Random(5)
    clock = iter(BEGIN_MS + 100 * n - chance.randrange(SLACK_MS) for n in range(300))
    monkeypatch.setattr("time.time_ns", lambda: next(clock) * 1_000_000)
    producer = client.entry_producer(name, create=True)
    for n in range(300):
        producer.send(b"%d" % n, key=f"k{n % 7}").result(timeout=20)
    monkeypatch.undo()
    producer.close()
    found = {}
    judge = quiet_client(pulsar_standalone.service_url)
    reader = judge.create_reader(name, pulsar.MessageId.earliest)
    while reader.has_message_available():
        message = reader.read_next(10_000)
        found[message.data()] = message.publish_timestamp()
    judge.close()
    assert len(found) == 300
    assert sorted(found.values()) != list(found.values())
    return found


def test_a_window_has_exactly_the_messages_published_in_it(load, times_ms):
    chance = random.Random(6)
    span = {"publishTimeSlackS": SLACK_MS / 1000}
    cuts = sorted(chance.sample(range(BEGIN_MS, BEGIN_MS + 30_000), 4))
    for start, end in zip([None, *cuts], [*cuts, None], strict=True):
        window = {"startingTime": start, "endingTime": end}
        expected = [
            value
            for value, time_ms in times_ms.items()
            if (start or 0) <= time_ms < (end or time_ms + 1)
        ]
        assert [
            bytes(row[0]) for row in load("value binary", **window, **span).collect()
        ] == expected


def test_filters_are_parsed_and_others_ignored():
    def filters(kind: str, column: str, value: object = None) -> object:
        return type(kind, (), {"attribute": (column,), "value": value})()

    of_time = {
        "GreaterThan": Times(6, None),
        "GreaterThanOrEqual": Times(5, None),
        "LessThan": Times(None, 5),
        "LessThanOrEqual": Times(None, 6),
        "EqualTo": Times(5, 6),
        "EqualNullSafe": Times(),
        "IsNotNull": Times(),
    }
    for kind, times in of_time.items():
        assert Wanted.of([filters(kind, "__publishTime", at(5))]) == Wanted(times)
    of_parts = {
        "GreaterThan": Times(6, None),
        "GreaterThanOrEqual": Times(6, None),
        "LessThan": Times(None, 6),
        "LessThanOrEqual": Times(None, 6),
    }
    for kind, times in of_parts.items():
        assert Wanted.of([filters(kind, "__publishTime", at(5.5))]) == Wanted(times)
    several = filters("In", "__publishTime", (at(9), at(3), None))
    later = filters("GreaterThan", "__publishTime", at(4))
    assert Wanted.of([several, later]) == Wanted(Times(5, 10))
    assert Wanted.of([filters("In", "__key", [b"a", b"b"])]).keys == {b"a", b"b"}
    assert Wanted.of([filters("EqualTo", "__partition", -1)]).partitions == {-1}
    for unknown in (
        filters("EqualTo", "__publishTime", 5),
        filters("EqualTo", "__publishTime", datetime(2026, 1, 1)),
        filters("EqualTo", "__messageId", b"no id"),
        filters("LessThan", "__messageId", b""),
        filters("GreaterThan", "__key", b"a"),
        filters("EqualTo", "__eventTime", at(5)),
        filters("EqualTo", "key", b"a"),
        type("Not", (), {"child": later})(),
    ):
        assert Wanted.of([unknown]) == ALL


def scanned(frame: DataFrame) -> int:
    """Number of rows that the source gave to a query that has run."""
    plan = frame._jdf.queryExecution().executedPlan()
    while plan.children().size():
        plan = plan.children().head()
    return int(plan.metrics().apply("numOutputRows").value())


@pytest.mark.skipif(not HAS_FILTERS, reason="Spark passes no filters to sources in Python")
def test_filters_find_the_same_rows_by_reading_fewer(load, times_ms, spark):
    columns = "value binary, __key binary, __publishTime timestamp, __messageId binary"
    frame = load(f"{columns}, __partition int", publishTimeSlackS=SLACK_MS / 1000)
    by_value = {bytes(row["value"]): row for row in frame.collect()}
    one = by_value[b"150"]
    time, key = functions.col("__publishTime"), functions.col("__key")
    id_, partition = functions.col("__messageId"), functions.col("__partition")
    recent = one["__publishTime"] + timedelta(seconds=14)
    both = [bytes(by_value[value]["__messageId"]) for value in (b"7", b"9")]
    queries = {
        "one time": (time == one["__publishTime"], 1),
        "late": (time >= recent, 20),
        "a window": ((time > one["__publishTime"]) & (time < recent), 200),
        "a key": (key == b"k3", 43),
        "keys": (key.isin(b"k1", b"k2") & (time < one["__publishTime"]), 50),
        "an id": (id_ == bytes(one["__messageId"]), 1),
        "ids": (id_.isin(both), 3),
        "no partition": (partition == 0, 0),
        "this partition": (partition == -1, 300),
        "not a key": (key != b"k3", 300),
    }
    expected = {
        name: sorted(bytes(row["value"]) for row in frame.where(where).collect())
        for name, (where, _) in queries.items()
    }
    assert expected["ids"] == [b"7", b"9"]
    spark.conf.set("spark.sql.python.filterPushdown.enabled", True)
    try:
        for name, (where, most) in queries.items():
            found = frame.where(where)
            rows = sorted(bytes(row["value"]) for row in found.collect())
            assert rows == expected[name], name
            assert len(rows) <= scanned(found) <= most, name
        assert frame.count() == 300  # no filter
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_a_filter_for_a_deleted_message_is_no_loss(client, name, options, send, trim):
    (first,) = send(b"0")
    trim()
    send(b"1")
    place: EntryPlace = first.place
    wanted = Wanted(places={-1: (place, (place[0], place[1] + 1))})
    with closing(EpochPlanner(SourceOptions.parse(options), None)) as planner:
        assert planner.tasks(planner.bounded(wanted)) == []
        assert len(planner.tasks(planner.bounded())) == 1
