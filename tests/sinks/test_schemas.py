"""Whole rows with registered schemas, as plain consumers of two languages see them."""

from __future__ import annotations

import contextlib
import datetime
import io
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import pulsar
import pytest
from google.protobuf import descriptor_pb2, timestamp_pb2
from pulsar.schema import AvroSchema as PlainAvro
from pulsar.schema import Integer, Record, String
from pulsar.schema import JsonSchema as PlainJson

from eos import AvroSchema, JsonSchema, KeyValueSchema, ProtobufSchema
from eos.errors import ConfigurationError, IncompatibleSchema, InputError
from eos.protocol import State
from eos.testing import maven
from eos.testing.jvm import find_java
from eos.wire.commands import SchemaInfo, SchemaType
from tests.support.admin import call
from tests.support.judge import quiet_client
from tests.support.spark_releases import needs_variant

CONSUME = Path(__file__).parent / "java" / "Consume.java"

FLIGHTS = """SELECT CAST(id AS INT) AS id, IF(id = 1, NULL, CONCAT('n', id)) AS name,
    IF(id % 3 = 0, NULL, id * 1.5D) AS x, ARRAY(id, id + 1) AS l, MAP('k', id) AS mp,
    IF(id = 2, NULL, STRUCT(id AS a, IF(id % 2 = 0, NULL, 'b') AS b)) AS s,
    IF(id = 1, NULL, id % 2 = 0) AS flag FROM RANGE(3)"""
ROWS = [
    {"id": 0, "name": "n0", "x": None, "l": [0, 1], "mp": {"k": 0}, "s": {"a": 0, "b": None},
     "flag": True},
    {"id": 1, "name": None, "x": 1.5, "l": [1, 2], "mp": {"k": 1}, "s": {"a": 1, "b": "b"},
     "flag": None},
    {"id": 2, "name": "n2", "x": 3.0, "l": [2, 3], "mp": {"k": 2}, "s": None, "flag": True},
]  # fmt: skip

PRIMITIVES = {
    "string": ("'ab'", "ab"),
    "boolean": ("true", True),
    "int8": ("CAST(-7 AS TINYINT)", -7),
    "int16": ("CAST(-300 AS SMALLINT)", -300),
    "int32": ("-70000", -70000),
    "int64": ("-70000000000L", -70000000000),
    "float": ("CAST(1.5 AS FLOAT)", 1.5),
    "double": ("-2.25D", -2.25),
    "date": ("DATE'1969-12-31'", -86400000),
    "timestamp": ("TIMESTAMP'2026-11-20 12:00:00.123456Z'", 1795176000123),
}


@pytest.fixture
def topic(name) -> str:
    return f"persistent://public/default/{name}"


@pytest.fixture
def registered(pulsar_standalone, name) -> Callable[[], list[dict[str, Any]]]:
    """Returns all versions of the topic's schema, in order."""

    def read(topic: str = f"public/default/{name}") -> list[dict[str, Any]]:
        answer = call(pulsar_standalone.admin_url, "GET", f"/v2/schemas/{topic}/schemas")
        return list(answer["getSchemaResponses"])

    return read


@pytest.fixture
def raw(pulsar_standalone, topic):
    """Returns the values of all messages as bytes, by a reader without a schema."""

    def read(count: int) -> list[bytes]:
        client = quiet_client(pulsar_standalone.service_url)
        with contextlib.closing(client):
            reader = client.create_reader(topic, pulsar.MessageId.earliest)
            return [reader.read_next(timeout_millis=20_000).data() for _ in range(count)]

    return read


@pytest.fixture
def java(pulsar_standalone):
    """Returns the lines of Pulsar's Java client for each topic, schema and number of messages."""
    command = find_java()
    if command is None:
        pytest.skip("there is no Java here: the broker runs in a container")
    jars = maven.pulsar_jars(maven.pulsar_version())[0].parent

    def consume(*asked: tuple[str, str, int]) -> dict[tuple[str, str], list[Any]]:
        arguments = [str(one) for group in asked for one in group]
        run = subprocess.run(
            [command, "-cp", f"{jars}/*", str(CONSUME), pulsar_standalone.service_url, *arguments],
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        lines = [line[5:] for line in run.stdout.splitlines() if line.startswith("READ ")]
        found: dict[tuple[str, str], list[Any]] = {}
        for line in map(json.loads, lines):
            assert "error" not in line, line
            found.setdefault((line["topic"], line["schema"]), []).append(line["value"])
        return found

    return consume


def by_id(rows: list[Any]) -> list[Any]:
    return sorted(rows, key=lambda row: row["id"])


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_nulls(one) for key, one in value.items() if one is not None}
    return value


def test_java_consumers_read_whole_rows_by_class_and_by_the_registry(spark, make_sink, java, name):
    df = spark.sql(FLIGHTS)
    kinds = {
        "avro": "avro",
        "json": "json",
        "separated": "key_value",
        "inline": KeyValueSchema(encoding="inline"),
    }
    for kind, schema in kinds.items():
        rows = df.selectExpr("CAST(id AS LONG) AS key", "STRUCT(*) AS value")
        rows = df if kind in ("avro", "json") else rows
        sink = make_sink(sink_id=f"{name}-{kind}", topic=f"{name}-{kind}", schema=schema)
        assert sink.write(rows, epoch="a").records == 3
    asked = [(f"{name}-{kind}", mode, 3) for kind in kinds for mode in ("auto", kind)]
    found = java(*asked)
    assert by_id(found[f"{name}-avro", "avro"]) == ROWS
    assert by_id(found[f"{name}-json", "json"]) == ROWS
    assert by_id([json.loads(one) for one in found[f"{name}-avro", "auto"]]) == ROWS
    texts = [json.loads(one) for one in found[f"{name}-json", "auto"]]
    assert by_id(texts) == [without_nulls(row) for row in ROWS]
    for kind in ("separated", "inline"):
        typed = found[f"{name}-{kind}", kind]
        assert sorted(pair["key"] for pair in typed) == [0, 1, 2]
        assert all(pair["key"] == pair["value"]["id"] for pair in typed)
        assert by_id([pair["value"] for pair in typed]) == ROWS
        generic = found[f"{name}-{kind}", "auto"]
        assert by_id([json.loads(pair["value"]) for pair in generic]) == ROWS


def test_java_consumers_read_single_values_and_protobuf(spark, make_sink, java, name):
    for kind, (sql, _) in PRIMITIVES.items():
        sink = make_sink(sink_id=f"{name}-{kind}", topic=f"{name}-{kind}", schema=kind)
        sink.write(spark.sql(f"SELECT {sql} AS value"), epoch="a")
    proto = f"{name}-proto"
    make_sink(sink_id=proto, topic=proto, schema="protobuf").write(spark.sql(FLIGHTS), epoch="a")
    asked = [(f"{name}-{kind}", mode, 1) for kind in PRIMITIVES for mode in (kind, "auto")]
    found = java(*asked, (proto, "auto", 3))
    for kind, (_, wanted) in PRIMITIVES.items():
        assert found[f"{name}-{kind}", kind] == [wanted]
        assert found[f"{name}-{kind}", "auto"] == [wanted]
    second = next(text for text in found[proto, "auto"] if text.startswith("id: 1\n"))
    lines = [line.strip() for line in second.splitlines()]
    assert lines == [
        "id: 1", "x: 1.5", "l: 1", "l: 2", "mp {", 'key: "k"', "value: 1", "}",
        "s {", "a: 1", 'b: "b"', "}",
    ]  # fmt: skip


def test_pulsar_client_reads_avro_by_the_registered_definition(
    spark, make_sink, pulsar_standalone, topic, registered
):
    df = spark.sql(
        """SELECT 1 AS id, DATE'2026-11-20' AS d, CAST(-1.28 AS DECIMAL(12, 2)) AS m,
        TIMESTAMP'2026-11-20 12:00:00.123456Z' AS t, TIMESTAMP_NTZ'1969-12-31 23:59:59.5' AS n,
        CAST('ab' AS BINARY) AS bin, CAST(NULL AS STRING) AS nothing,
        ARRAY(STRUCT(1 AS a), STRUCT(2 AS a)) AS inner"""
    )
    make_sink(schema="avro").write(df, epoch="a")
    (version,) = registered()
    assert version["type"] == "AVRO"
    client = quiet_client(pulsar_standalone.service_url)
    with contextlib.closing(client):
        schema = PlainAvro(None, schema_definition=json.loads(version["data"]))
        consumer = client.subscribe(
            topic, "s", schema=schema, initial_position=pulsar.InitialPosition.Earliest
        )
        row = consumer.receive(timeout_millis=20_000).value()
    assert str(row.pop("m")) == "-1.28"
    assert row == {
        "id": 1,
        "d": datetime.date(2026, 11, 20),
        "t": datetime.datetime(2026, 11, 20, 12, 0, 0, 123456, tzinfo=datetime.UTC),
        "n": datetime.datetime(1969, 12, 31, 23, 59, 59, 500000),
        "bin": b"ab",
        "nothing": None,
        "inner": [{"a": 1}, {"a": 2}],
    }


class Flight(Record):
    id = Integer()
    name = String()


def test_pulsar_client_reads_json_by_a_class(spark, make_sink, pulsar_standalone, topic):
    df = spark.sql("SELECT 7 AS id, CAST(NULL AS STRING) AS name")
    make_sink(schema="json").write(df, epoch="a")
    client = quiet_client(pulsar_standalone.service_url)
    with contextlib.closing(client):
        consumer = client.subscribe(
            topic,
            "s",
            schema=PlainJson(Flight),
            initial_position=pulsar.InitialPosition.Earliest,
        )
        row = consumer.receive(timeout_millis=20_000).value()
    assert (row.id, row.name) == (7, None)


def test_json_keeps_microseconds_and_does_not_depend_on_the_sessions_zone(spark, make_sink, raw):
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        df = spark.sql("SELECT TIMESTAMP'2026-11-20 12:00:00.123456Z' AS t, 0.10BD AS m")
        make_sink(schema="json").write(df, epoch="a")
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    assert raw(1) == [b'{"t":"2026-11-20T12:00:00.123456Z","m":0.10}']


def test_columns_with_the_sources_names_are_the_messages_own(
    spark, make_sink, raw, pulsar_standalone, topic
):
    df = spark.sql(
        """SELECT 1 AS id, 5 AS value, 'k' AS __key,
        TIMESTAMP'2026-11-20 12:00:00Z' AS __event_time, MAP('p', 'q') AS __properties"""
    )
    make_sink(schema="json").write(df, epoch="a")
    client = quiet_client(pulsar_standalone.service_url)
    with contextlib.closing(client):
        reader = client.create_reader(topic, pulsar.MessageId.earliest)
        message = reader.read_next(timeout_millis=20_000)
    assert message.data() == b'{"id":1,"value":5}'
    assert (message.partition_key(), message.properties()) == ("k", {"p": "q"})
    assert message.event_timestamp() == 1795176000000


def test_a_query_continues_after_a_compatible_change(
    spark, make_sink, source, registered, log, raw, tmp_path
):
    sink = make_sink(schema="avro")
    changes = ["SELECT 1 AS id, 'a' AS s", "SELECT 2 AS id, 'b' AS s, 0.5D AS neu"]
    for _ in changes:
        source.add("x")
    source.run(lambda _, epoch: sink(spark.sql(changes[epoch]), epoch), tmp_path / "checkpoint")
    assert [record.state for record in log() if record.state is State.COMMITTED] == [
        State.COMMITTED
    ] * 2
    first, second = (json.loads(one["data"]) for one in registered())
    assert [field["name"] for field in first["fields"]] == ["id", "s"]
    assert second["fields"][:2] == first["fields"]
    assert second["fields"][2] == {"name": "neu", "type": ["null", "double"], "default": None}
    old, new = raw(2)
    assert fastavro.schemaless_reader(io.BytesIO(old), first) == {"id": 1, "s": "a"}
    assert fastavro.schemaless_reader(io.BytesIO(new), second) == {"id": 2, "s": "b", "neu": 0.5}


def test_an_incompatible_change_aborts_the_epoch_and_shows_both(
    spark, make_sink, registered, log, raw
):
    sink = make_sink(schema="json")
    sink.write(spark.sql("SELECT 1 AS id, 'a' AS s"), epoch="a")
    with pytest.raises(IncompatibleSchema) as caught:
        sink.write(spark.sql("SELECT 'x' AS id, 'a' AS s, STRUCT(1 AS a) AS t"), epoch="b")
    lines = [" ".join(line.split()) for line in str(caught.value).splitlines()]
    assert "FULL" in str(caught.value)  # the broker's reason: its strategy
    assert "id null or int null or string <-" in lines
    assert "s null or string null or string" in lines
    assert "t.a null or int <-" in lines
    assert log()[-1].state is State.ABORTED
    assert len(registered()) == 1
    assert raw(1) == [b'{"id":1,"s":"a"}']


def test_a_changed_type_is_named_with_the_fixes(spark, make_sink):
    sink = make_sink(schema="avro")
    sink.write(spark.sql("SELECT 1 AS id, STRUCT('a' AS t) AS s"), epoch="a")
    with pytest.raises(IncompatibleSchema) as caught:
        sink.write(spark.sql("SELECT 1 AS id, STRUCT(1.5D AS t) AS s"), epoch="b")
    text = str(caught.value)
    assert "s.t is null or string in the topic, and null or double here" in text
    assert "Cast the columns" in text
    assert "set-schema-compatibility-strategy" in text


def test_a_topic_of_other_values_than_records_is_named(spark, make_sink, client, name):
    array = SchemaInfo(type=SchemaType.AVRO, data=b'{"type": "array", "items": "int"}')
    client.create_unpartitioned(name)
    for producer in client.entry_producers([name], schema=array):
        producer.close()
    with pytest.raises(IncompatibleSchema) as caught:
        make_sink(schema="avro").write(spark.sql("SELECT 1 AS id"), epoch="0")
    for words in ("another topic", "avro: array of int"):
        assert words in caught.value.hint


def test_renamed_columns_are_logged_or_refused(spark, make_sink, registered, log, caplog):
    old, new = spark.sql("SELECT 1 AS id, 'x' AS a"), spark.sql("SELECT 1 AS id, 'x' AS b")
    make_sink(schema="avro").write(old, epoch="a")
    strict = make_sink(schema="avro", on_changed_columns="refuse")
    for df, what in [(new, "new: b; missing: a"), (old.select("id"), "missing: a")]:
        with pytest.raises(InputError, match=f"differ from those of topic .*: {what}.*continue"):
            strict.write(df, epoch="b")
    assert {record.state for record in log() if record.epoch == "b"} <= {State.FAILED}
    strict.write(old.select("a", "id"), epoch="b")
    caplog.set_level("INFO", "eos.sinks")
    sink = make_sink(schema="avro")
    sink.write(new, epoch="c")
    sink.write(new, epoch="d")
    said = [one for one in caplog.records if "differ from those of topic" in one.getMessage()]
    assert [one.levelname for one in said] == ["WARNING"]
    assert len(registered()) == 2


@pytest.mark.parametrize("options", [{}, {"schema": "avro"}])
def test_wrong_columns_are_refused_before_a_transaction_begins(spark, make_sink, log, options):
    df = spark.sql("SELECT 1 AS wrong" if not options else "SELECT INTERVAL '1' DAY AS v")
    with pytest.raises(InputError):
        make_sink(**options).write(df, epoch="a")
    assert {record.state for record in log() if record.epoch} <= {State.FAILED}


def test_a_registered_schema_is_used_and_extended(
    spark, make_sink, pulsar_standalone, topic, registered, raw
):
    theirs = {
        "type": "record",
        "name": "Order",
        "namespace": "com.example",
        "doc": "theirs",
        "fields": [
            {"name": "note", "type": ["null", "string"], "default": None},
            {"name": "id", "type": "long"},
            {
                "name": "state",
                "type": {"type": "enum", "name": "S", "symbols": ["OPEN", "DONE"]},
                "default": "OPEN",
            },
        ],
    }
    client = quiet_client(pulsar_standalone.service_url)
    with contextlib.closing(client):
        client.create_producer(topic, schema=PlainAvro(None, schema_definition=theirs)).close()
    make_sink(schema="avro").write(spark.sql("SELECT 5 AS id"), epoch="a")
    (version,) = registered()
    (value,) = raw(1)
    row = fastavro.schemaless_reader(io.BytesIO(value), json.loads(version["data"]))
    assert row == {"note": None, "id": 5, "state": "OPEN"}
    # Rows with more columns extend the registered schema and keep its parts.
    make_sink(schema="avro").write(spark.sql("SELECT 6 AS id, 'x' AS neu"), epoch="b")
    extended = json.loads(registered()[1]["data"])
    assert (extended["name"], extended["namespace"], extended["doc"]) == (
        "Order", "com.example", "theirs",
    )  # fmt: skip
    assert [field["name"] for field in extended["fields"]] == ["note", "id", "state", "neu"]


def test_microseconds_that_the_topics_schema_cuts_off_are_logged(spark, make_sink, raw, caplog):
    kinds = {
        name: {"type": "long", "logicalType": f"timestamp-{name}"} for name in ("millis", "micros")
    }
    fields = [{"name": name, "type": kind} for name, kind in kinds.items()]
    theirs = json.dumps({"type": "record", "name": "Theirs", "fields": fields})
    moment = datetime.datetime(2026, 11, 20, 12, 0, 0, 123456, datetime.UTC)
    df = spark.createDataFrame([(moment, moment)], "millis timestamp, micros timestamp")
    make_sink(schema=AvroSchema(theirs)).write(df, epoch="a")
    caplog.clear()
    make_sink(schema="avro").write(df, epoch="b")
    for value in raw(2):
        row = fastavro.schemaless_reader(io.BytesIO(value), json.loads(theirs))
        assert row == {"millis": moment.replace(microsecond=123_000), "micros": moment}
    (said,) = [one.getMessage() for one in caplog.records if "milliseconds" in one.getMessage()]
    assert said.endswith("microseconds of millis are cut off")


def test_the_users_schema_is_registered_unchanged(spark, make_sink, registered, raw):
    own = """{"type": "record", "name": "Mine", "fields": [
        {"name": "id", "type": "long"}, {"name": "kind", "type": "string", "default": "none"}]}"""
    make_sink(schema=AvroSchema(own)).write(spark.sql("SELECT 5 AS id"), epoch="a")
    (version,) = registered()
    assert json.loads(version["data"]) == json.loads(own)
    assert fastavro.schemaless_reader(io.BytesIO(raw(1)[0]), json.loads(own)) == {
        "id": 5,
        "kind": "none",
    }
    with pytest.raises(InputError, match="The schema has no field 'x'"):
        make_sink(schema=AvroSchema(own)).write(spark.sql("SELECT 5 AS id, 1 AS x"), epoch="b")


def test_a_compiled_message_class_is_a_schema(spark, make_sink, registered, raw):
    df = spark.sql("SELECT 5L AS seconds, 7 AS nanos")
    make_sink(schema=ProtobufSchema.of(timestamp_pb2.Timestamp)).write(df, epoch="a")
    (version,) = registered()
    assert version["type"] == "PROTOBUF_NATIVE"
    assert timestamp_pb2.Timestamp.FromString(raw(1)[0]) == timestamp_pb2.Timestamp(
        seconds=5, nanos=7
    )


def test_protobuf_keeps_the_registered_field_numbers(spark, make_sink, registered, raw):
    make_sink(schema="protobuf").write(spark.sql("SELECT 1 AS b, 'x' AS a"), epoch="a")
    make_sink(schema="protobuf").write(spark.sql("SELECT 'y' AS a, 2 AS b, 3 AS c"), epoch="b")
    assert len(registered()) == 2
    first, second = raw(2)
    assert first == b"\x08\x01\x12\x01x"
    assert second == b"\x08\x02\x12\x01y\x18\x03"


def test_each_of_many_topics_is_written_by_its_own_schema(
    spark, make_sink, pulsar_standalone, name, registered
):
    client = quiet_client(pulsar_standalone.service_url)
    theirs = {"type": "record", "name": "T", "fields": [{"name": "id", "type": "long"}]}
    with contextlib.closing(client):
        client.create_producer(
            f"{name}-1", schema=PlainAvro(None, schema_definition=theirs)
        ).close()
    df = spark.range(6).selectExpr(
        "CAST(id AS INT) AS id", f"CONCAT('{name}-', id % 3) AS __topic", "'k' AS __key"
    )
    sink = make_sink(topic=None, receipt_namespace="public/default", schema="avro")
    assert sink.write(df, epoch="a").records == 6
    names = [
        json.loads(registered(f"public/default/{name}-{n}")[0]["data"])["name"] for n in (0, 1, 2)
    ]
    assert names == ["Row", "T", "Row"]


def test_tombstones_have_no_bytes_under_a_schema(spark, make_sink, pulsar_standalone, topic):
    df = spark.sql("SELECT 'k' AS key, CAST(NULL AS STRUCT<a: INT>) AS value")
    make_sink(schema="avro", null_values="tombstone").write(df, epoch="a")
    client = quiet_client(pulsar_standalone.service_url)
    with contextlib.closing(client):
        reader = client.create_reader(topic, pulsar.MessageId.earliest)
        message = reader.read_next(timeout_millis=20_000)
    assert (message.data(), message.partition_key()) == (b"", "k")


def namespace(pulsar_standalone, name: str, **policies: object) -> str:
    call(pulsar_standalone.admin_url, "PUT", f"/v2/namespaces/public/{name}", {})
    for policy, value in policies.items():
        path = f"/v2/namespaces/public/{name}/{policy}"
        method = "PUT" if policy == "schemaCompatibilityStrategy" else "POST"
        call(pulsar_standalone.admin_url, method, path, value)
    return f"persistent://public/{name}/t"


def test_enforced_schemas_require_a_schema(spark, make_sink, pulsar_standalone, name):
    topic = namespace(pulsar_standalone, name, schemaValidationEnforced=True)
    df = spark.sql("SELECT 1 AS id")
    assert make_sink(topic=topic, schema="avro").write(df, epoch="a").records == 1
    with pytest.raises(IncompatibleSchema, match="schema="):
        make_sink(topic=topic).write(spark.sql("SELECT 'x' AS value"), epoch="b")


def test_a_refused_registration_names_the_operators_command(
    spark, make_sink, pulsar_standalone, name
):
    topic = namespace(pulsar_standalone, name, isAllowAutoUpdateSchema=False)
    sink = make_sink(topic=topic, receipt_namespace="public/default", schema="avro")
    remedy = f"set-is-allow-auto-update-schema --enable public/{name}"
    with pytest.raises(IncompatibleSchema, match=remedy) as caught:
        sink.write(spark.sql("SELECT 1 AS id"), epoch="a")
    assert "the topic has no schema  the rows need avro" in str(caught.value)


# Changes that the broker allows: a new column, one less, another type (measured).
STRATEGIES = {
    "ALWAYS_COMPATIBLE": (True, True, True),
    "BACKWARD": (True, True, False),
    "FORWARD": (True, True, False),
    "FULL": (True, True, False),
    "BACKWARD_TRANSITIVE": (True, True, False),
    "FORWARD_TRANSITIVE": (True, True, False),
    "FULL_TRANSITIVE": (True, True, False),
    "ALWAYS_INCOMPATIBLE": (False, True, False),
}


def test_a_pair_may_be_of_single_values_and_a_tombstone(spark, make_sink, java, name):
    df = spark.sql("SELECT 'k' AS key, 5L AS value")
    make_sink(schema="key_value").write(df, epoch="a")
    gone = spark.sql("SELECT 'k' AS key, CAST(NULL AS LONG) AS value")
    make_sink(schema="key_value", null_values="tombstone").write(gone, epoch="b")
    assert java((name, "auto", 1)) == {(name, "auto"): [{"key": "k", "value": 5}]}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_each_compatibility_strategy_is_respected(
    spark, make_sink, pulsar_standalone, name, strategy
):
    topic = namespace(pulsar_standalone, name, schemaCompatibilityStrategy=strategy)
    sink = make_sink(topic=topic, schema="avro")
    sink.write(spark.sql("SELECT 1 AS id, 'x' AS a"), epoch="0")  # in Spark both are never null
    changes = [
        "SELECT 1 AS id, 'x' AS a, 'y' AS neu",
        "SELECT 1 AS id",
        "SELECT 1 AS id, STRUCT(1 AS b) AS a",
    ]
    allowed = []
    for epoch, change in enumerate(changes, 1):
        try:
            sink.write(spark.sql(change), epoch=str(epoch))
        except IncompatibleSchema:
            allowed.append(False)
        else:
            allowed.append(True)
    assert tuple(allowed) == STRATEGIES[strategy]


@pytest.mark.parametrize(
    ("schema", "sql", "text"),
    [
        (
            "int32",
            "SELECT 1L AS value",
            "'int32' does not support.*choose the schema 'int64'",
        ),
        ("string", "SELECT 1 AS value", "does not support"),
        ("avro", "SELECT MAP(1, 2) AS m", "map with keys of int;"),
        ("json", "SELECT MAP(1, 2) AS m", "keys of int;"),
        ("avro", "SELECT 1 AS `a b`", "'a b' has a name that no schema allows"),
        ("avro", "SELECT STRUCT(1 AS a, 2 AS A) AS s", "Two columns are called 's.a'"),
        ("avro", "SELECT INTERVAL '1' DAY AS i", "'i' is interval day"),
        ("avro", "SELECT NULL AS n", "'n' is void"),
        pytest.param(
            "json", "SELECT ARRAY(PARSE_JSON('1')) AS v", r"'v\[\]' is variant", marks=needs_variant
        ),
        ("string", "SELECT INTERVAL '1' YEAR AS value", "The value is interval year"),
        ("protobuf", "SELECT 1.5BD AS m", r"'m' is decimal\(2,1\)"),
        ("key_value", "SELECT STRUCT(1 AS a) AS value", "Column 'key' is missing"),
        ("avro", "SELECT 1 AS a, 2 AS A", "Two columns are named 'a'"),
        ("avro", "SELECT 1 AS a, 2 AS __KEY", "'__KEY' differs from the message's column '__key'"),
        ("avro", "SELECT 1 AS a, X'00' AS __key", "'__key' has keys .* which of them are text"),
        ("avro", "SELECT 1 AS a, X'00' AS __malformedValue", "that it can't read"),
        ("avro", "SELECT 'k' AS __key", "no columns for the record"),
        ("avro", "SELECT 1 AS a, 2 AS a", "Two columns are named 'a'"),
    ],
)
def test_unsupported_columns_are_refused_before_rows_are_sent(spark, make_sink, schema, sql, text):
    with pytest.raises(InputError, match=text):
        make_sink(schema=schema).write(spark.sql(sql), epoch="a")


def test_a_null_in_a_required_field_aborts_the_epoch(spark, make_sink, log):
    own = '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}'
    df = spark.sql("SELECT CAST(NULL AS INT) AS a")
    with pytest.raises(InputError, match="'a' is null in a row"):
        make_sink(schema=AvroSchema(own)).write(df, epoch="a")
    assert log()[-1].state is State.ABORTED


def test_an_unknown_schema_is_refused(make_sink):
    with pytest.raises(ConfigurationError, match=r"schema 'xml' does not exist\. Use one of bytes"):
        make_sink(schema="xml")
    with pytest.raises(ConfigurationError, match="option 'schema'"):
        make_sink(schema=5)
    with pytest.raises(ConfigurationError, match="no option 'value_schema'"):
        make_sink(value_schema="avro")
    with pytest.raises(ConfigurationError, match="not JSON"):
        JsonSchema("{")
    with pytest.raises(ConfigurationError, match=r"json\.dumps"):
        AvroSchema({"type": "record"})  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="not a compiled Protobuf message"):
        ProtobufSchema.of(descriptor_pb2)
