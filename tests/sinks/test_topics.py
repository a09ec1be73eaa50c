"""Rows that name their topics: many topics in one transaction, all or nothing."""

from __future__ import annotations

import itertools
from collections import defaultdict
from unittest.mock import Mock

import pyarrow as pa
import pytest

from eos import failpoints
from eos.admin import AdminClient
from eos.errors import ConfigurationError, InputError, TopicNotFound
from eos.ids import TopicName
from eos.protocol import State
from eos.pulsar.part import pulsar_part
from eos.recovery.resolve import resolve
from eos.sinks import _topics
from eos.steps import Step
from eos.transport.auth import Auth
from tests.support.admin import create_partitioned, delete_topic
from tests.support.judge import drain
from tests.transport.scripted import wait_until

COLUMNS = "value string, key string, topic string"


@pytest.fixture
def routed(make_sink):
    """Makes sinks without the option topic."""
    return lambda **options: make_sink(topic=None, receipt_namespace="public/default", **options)


@pytest.fixture
def in_topic(pulsar_standalone):
    def values(topic: str) -> list[int]:
        seen = drain(pulsar_standalone.service_url, f"persistent://public/default/{topic}")
        return sorted(int(message.value) for message in seen)

    return values


def rows(spark, count: int, topics: list[str]):
    """Return rows for two tasks; row n goes to topic n modulo their number."""
    texts = ", ".join(f"'{topic}'" for topic in topics)
    return spark.range(0, count, 1, 2).selectExpr(
        "CAST(id AS STRING) AS value",
        "CONCAT('k', id % 11) AS key",
        f"ARRAY({texts})[CAST(id % {len(topics)} AS INT)] AS topic",
    )


def test_each_topic_gets_its_rows_in_one_transaction(
    spark, routed, name, pulsar_standalone, in_topic, log, recovery, tmp_path
):
    topics = [f"{name}-{n}" for n in range(5)]
    create_partitioned(pulsar_standalone.admin_url, topics[1], 3)
    result = routed().write(rows(spark, 500, topics), epoch="a")
    assert result.records == 500
    for number, topic in enumerate(topics):
        assert in_topic(topic) == list(range(number, 500, 5))
    part = pulsar_part(log()[-1])
    assert sorted(part.topics) == [f"persistent://public/default/{topic}" for topic in topics]
    assert part.output == "5 topics"
    where = ("--commit-log", tmp_path / "log", "--service-url", pulsar_standalone.service_url)
    assert recovery("verify", *where).code == 0
    (sink,) = recovery("status", *where, "--json").json["sinks"]
    assert sorted(sink["topics"]) == sorted(part.topics)


def test_a_key_goes_to_one_partition_of_each_topic(spark, routed, name, pulsar_standalone):
    topics = [f"{name}-a", f"{name}-b"]
    for topic, count in zip(topics, (4, 7), strict=True):
        create_partitioned(pulsar_standalone.admin_url, topic, count)
    routed().write(rows(spark, 400, topics), epoch="a")
    for topic in topics:
        places = defaultdict(set)
        for seen in drain(pulsar_standalone.service_url, f"persistent://public/default/{topic}"):
            places[seen.key].add(seen.topic)
        assert len(places) == 11
        assert all(len(found) == 1 for found in places.values())


def test_rows_stay_in_order_however_their_topic_is_spelled():
    full = "persistent://public/default/a"
    texts = ["a", full, "b", "public/default/a", "a"]
    client = Mock()
    client.partition_count.return_value = 0
    for count, wanted in ((5, {"a": [0, 1, 3, 4], "b": [2]}), (2, {"a": [0, 1]})):
        batch = pa.record_batch({"topic": texts[:count], "value": list(range(count))})
        split = list(_topics.TaskTopics(client, (), creation=None, options=Mock()).split(batch))
        found = [
            (topics[0].rpartition("/")[2], rows["value"].to_pylist()) for topics, rows in split
        ]
        assert found == list(wanted.items())


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (None, "'topic' is null"),
        ("a b", "expected persistent://tenant/namespace/topic"),
        ("non-persistent://public/default/x", "only persistent:// topics"),
        ("x-partition-0", "has the partition"),
        ("__eos-receipts-x", "a system topic"),
    ],
)
def test_one_row_with_a_bad_topic_aborts_all(spark, routed, name, in_topic, log, bad, says):
    routed().write(spark.createDataFrame([("0", "k", name)], COLUMNS), epoch="0")
    mixed = [(str(n), "k", name) for n in range(1, 50)] + [("50", "k", bad)]
    with pytest.raises(InputError, match=says):
        routed().write(spark.createDataFrame(mixed, COLUMNS), epoch="a")
    assert in_topic(name) == [0]
    assert log()[-1].state is State.ABORTED


def test_an_unknown_topic_is_refused_or_created(spark, routed, name, in_topic):
    new = f"{name}-new"
    df = spark.createDataFrame(
        [("1", "k", new), ("2", "l", f"persistent://public/default/{new}")], COLUMNS
    )
    with pytest.raises(TopicNotFound, match=r"create_topics=True") as caught:
        routed(create_topics=False).write(df, epoch="a")
    assert new in str(caught.value)
    assert routed(create_topics=True).write(df, epoch="a").records == 2
    assert in_topic(new) == [1, 2]


def test_the_option_topic_overrides_the_column(spark, make_sink, name, in_topic):
    df = spark.createDataFrame([("1", "k", f"{name}-other")], COLUMNS)
    make_sink().write(df, epoch="a")
    assert in_topic(name) == [1]


def test_a_missing_topic_option_is_an_error_with_a_fix(spark, make_sink, routed):
    with pytest.raises(ConfigurationError, match=r"set topic.*receipt_namespace"):
        make_sink(topic=None)
    with pytest.raises(InputError, match="Column 'topic' is missing"):
        routed().write(spark.range(1).selectExpr("'x' AS value"), epoch="a")
    with pytest.raises(InputError, match="'topic' is int"):
        routed().write(spark.range(1).selectExpr("'x' AS value", "1 AS topic"), epoch="a")


def test_a_dead_drivers_prepared_epoch_is_committed_in_all_topics(
    spark, routed, name, in_topic, tmp_path
):
    topics = [f"{name}-{n}" for n in range(3)]
    routed().write(rows(spark, 3, topics), epoch="0")

    def die() -> None:
        raise Died

    with failpoints.armed(Step.PREPARE, die), pytest.raises(Died):
        routed().write(rows(spark, 30, topics), epoch="a")
    (last,) = resolve(name, commit_log=tmp_path / "log")
    assert last.state is State.COMMITTED
    assert [len(in_topic(topic)) for topic in topics] == [11] * 3


class Died(BaseException):
    """The process is gone."""


def test_hundreds_of_topics_in_one_epoch(spark, routed, name, log):
    topics = [f"{name}-{n}" for n in range(300)]
    assert routed(compression="lz4").write(rows(spark, 3000, topics), epoch="a").records == 3000
    parts = pulsar_part(log()[-1]).partitions
    assert len(parts) == 300
    assert {part.records for part in parts} == {10}


def test_unknown_topics_are_created_with_partitions(
    spark, make_sink, routed, pulsar_standalone, name, in_topic
):
    counts = {}
    options = {"create_topics": 3, "admin_url": pulsar_standalone.admin_url}
    names = [f"{name}-a", f"{name}-b"]
    assert routed(**options).write(rows(spark, 40, names), epoch="a").records == 40
    fixed = spark.range(10).selectExpr("CAST(id AS STRING) AS value", "STRING(id) AS key")
    make_sink(sink_id=f"{name}-fixed", **options).write(fixed, epoch="a")
    for topic in (*names, name):
        path = f"/v2/persistent/public/default/{topic}/partitions"
        counts[topic] = pulsar_standalone.admin("GET", path)["partitions"]
    assert counts == dict.fromkeys((*names, name), 3)
    assert in_topic(names[1]) == list(range(1, 40, 2))
    assert in_topic(name) == list(range(10))


def test_creating_partitions_needs_the_admin_api(make_sink):
    with pytest.raises(ConfigurationError, match="needs admin_url"):
        make_sink(create_topics=3)
    with pytest.raises(ConfigurationError, match="'create_topics'"):
        make_sink(create_topics=-1, admin_url="http://localhost:8080")


def test_a_created_topic_warns_about_retention(
    spark, make_sink, pulsar_standalone, name, caplog, monkeypatch
):
    monkeypatch.setattr(_topics, "_made", itertools.count())  # this process may have created many
    df = spark.sql("SELECT 'x' AS value")
    make_sink().write(df, epoch="a")
    (said,) = [one.message for one in caplog.records if one.name == "eos.sinks._topics"]
    assert f"{name} was created (create_topics)" in said
    assert "set retention_minutes" in said
    caplog.clear()
    url = pulsar_standalone.admin_url
    kept = {"admin_url": url, "retention_minutes": 10_080}
    for topic, how in ((f"{name}-flat", True), (f"{name}-parts", 3)):
        make_sink(sink_id=topic, topic=topic, create_topics=how, **kept).write(df, epoch="a")
        admin = AdminClient(url, Auth(), timeout_s=20)
        wait_until(lambda admin=admin, topic=topic: kept_min(admin, topic) == 10_080)
    assert [one for one in caplog.records if one.name == "eos.sinks._topics"] == []


def kept_min(admin: AdminClient, topic: str) -> int:
    return admin.retention(TopicName.parse(topic)).minutes


@pytest.mark.parametrize(
    "options",
    [
        {"retention_minutes": 60},
        {"retention_minutes": 60, "create_topics": False, "admin_url": "http://localhost:8080"},
        {"retention_minutes": 0, "admin_url": "http://localhost:8080"},
        {"retention_minutes": -2, "admin_url": "http://localhost:8080"},
    ],
)
def test_invalid_retention_options_are_refused(make_sink, options):
    with pytest.raises(ConfigurationError, match="retention_minutes"):
        make_sink(**options)


def test_a_lost_topic_is_recreated_with_a_warning(
    spark, make_sink, pulsar_standalone, name, caplog, recovery, tmp_path
):
    sink = make_sink()
    df = spark.sql("SELECT 'x' AS value")
    sink.write(df, epoch="a")
    sink.close()
    delete_topic(pulsar_standalone.admin_url, f"public/default/{name}")
    where = ("--commit-log", tmp_path / "log", "--admin-url", pulsar_standalone.admin_url)
    assert recovery("verify", name, *where).code == 1
    make_sink().write(df, epoch="b")
    (said,) = [text for text in caplog.messages if "is recreated" in text]
    assert f"{name}, to which sink {name} has written, no longer exists" in said
    assert "1 parts are no longer there" in recovery("verify", name, *where).out
