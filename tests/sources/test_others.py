"""Messages of the Java client and ``pulsar-client`` are read as Java reads them.

``java/Others.java`` writes a topic for each case and prints what ``AUTO_CONSUME`` reads.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import math
import subprocess
import time
import uuid
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from pulsar import schema as plain

from eos import AvroSchema as SinkAvro
from eos import KeyValueSchema, PulsarSink
from eos.catalog._json_values import ValueDecoder
from eos.catalog._peek_reader import PeekReader
from eos.client import PulsarClient
from eos.errors import IncompatibleSchema
from eos.ids import TopicName
from eos.schemas import PrimitiveSchema
from eos.sources._epoch_planner import values_of
from eos.sources._row_format import METADATA
from eos.sources._source_options import SourceOptions
from eos.sources._spark_columns import row_format, schema_of_source
from eos.sources._value_format import MALFORMED_REASON, MALFORMED_VALUE
from eos.sources.data_source import PulsarBatchReader
from eos.testing import PulsarStandalone, maven
from eos.testing.jvm import find_java
from tests.support.admin import call
from tests.support.judge import quiet_client

WRITE = Path(__file__).parent / "java" / "Others.java"
EPOCH = datetime.datetime(1970, 1, 1)

# Cases that Java consumers can't read, or read wrongly, with the reason.
REFUSED = {"protobuf": "PROTOBUF"}
BY_CHARSET = {"charset": ["text", "ä€😀"]}  # like ``new StringSchema(UTF_16)``
# Rows with no version or an unknown one are malformed here, and bytes for Java.
MALFORMED = {
    "unversioned-avro": {1: "names no version"},
    "unversioned-json": {1: "names no version"},
    "unversioned-string": {1: "names no version"},
    "py-unversioned": {1: "names no version"},
    "deleted-and-new": {1: "schema version 1, which is not in the registry"},
    "changed": {0: "different kinds"},
}


class Color(Enum):
    """An enum as Python users declare it."""

    RED = 1
    GREEN = 2


class Part(plain.Record):
    """A record within ``Whole``."""

    a = plain.Integer()
    b = plain.String(default="b")


class Whole(plain.Record):
    """A record as Python users send it."""

    id = plain.Long(required=True)
    name = plain.String(default="nobody")
    ratio = plain.Double()
    flag = plain.Boolean()
    data = plain.Bytes()
    color = plain.CustomEnum(Color)
    part = Part()
    parts = plain.Array(Part())
    counts = plain.Map(plain.Integer())


def write_by_python(service_url: str, namespace: str) -> None:
    """Send the cases by ``pulsar-client``."""
    full = {
        "id": 1, "name": "ä", "ratio": 0.5, "flag": True, "data": b"\0\xff", "color": Color.GREEN,
        "part": Part(a=1, b=None), "parts": [Part(a=2)], "counts": {"k": 3},
    }  # fmt: skip
    json_full = {name: one for name, one in full.items() if name != "data"}
    cases = {
        "py-avro": (plain.AvroSchema(Whole), [Whole(**full), Whole(id=2)]),
        "py-json": (plain.JsonSchema(Whole), [Whole(**json_full), Whole(id=2)]),
        "py-string": (plain.StringSchema(), ["text"]),
        "py-bytes": (plain.BytesSchema(), [b"\0"]),
        "py-unversioned": (plain.JsonSchema(Part), [Part(a=1)]),
    }
    client = quiet_client(service_url)
    try:
        for name, (schema, values) in cases.items():
            producer = client.create_producer(f"persistent://{namespace}/{name}", schema=schema)
            for value in values:
                producer.send(value)
        plainly = client.create_producer(f"persistent://{namespace}/py-unversioned")
        plainly.send(b'{"a": 1}')
    finally:
        client.close()


@pytest.fixture(scope="module")
def others(pulsar_standalone: PulsarStandalone) -> dict[str, list[dict[str, Any]]]:
    """The topics' full names -> Java's values of each message."""
    java = find_java()
    if java is None:
        pytest.skip("there is no Java here: the broker runs in a container")
    namespace = f"public/others-{uuid.uuid4().hex[:8]}"
    path = f"/v2/namespaces/{namespace}"
    call(pulsar_standalone.admin_url, "PUT", path, {})
    strategy = "ALWAYS_COMPATIBLE"  # for the topic whose schema type changes
    call(pulsar_standalone.admin_url, "PUT", f"{path}/schemaCompatibilityStrategy", strategy)
    write_by_python(pulsar_standalone.service_url, namespace)
    jars = maven.pulsar_jars(maven.pulsar_version())[0].parent
    urls = [pulsar_standalone.service_url, pulsar_standalone.admin_url]
    run = subprocess.run(
        [java, "-cp", f"{jars}/*", str(WRITE), *urls, namespace],
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr[-3000:]
    lines = [json.loads(line[5:]) for line in run.stdout.splitlines() if line.startswith("READ ")]
    return {f"persistent://{namespace}/{line['case']}": line["rows"] for line in lines}


@pytest.fixture
def topic_of(others):
    """Return the full name of a case's topic."""
    return {name.rpartition("/")[2]: name for name in others}.__getitem__


def read(service_url: str, topic: str, **more: str) -> list[dict[str, Any]]:
    """Return the rows of the source's tasks."""
    given = {"serviceUrl": service_url, "topic": topic, "metadata": "true", "mode": "permissive"}
    options = SourceOptions.parse({**given, **more})
    values = values_of(options)
    form = row_format(values, schema_of_source(values, metadata=True))
    reader = PulsarBatchReader(options, form)
    parts = reader.partitions()
    return [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]


def value_of(row: dict[str, Any]) -> Any:
    """Return the part of a row that Java calls the value."""
    left = {
        name: one
        for name, one in row.items()
        if name not in METADATA and name not in (MALFORMED_VALUE, MALFORMED_REASON)
    }
    return left["value"] if list(left) == ["value"] else left


def same(java: Any, ours: Any) -> bool:
    """Whether both values are equal; Java's are printed by ``Others.java``."""
    if isinstance(ours, list) and ours and isinstance(ours[0], tuple):
        ours = dict(ours)
    match ours:
        case dict() if ours and all(name.startswith("member") for name in ours):
            return same(java, next((one for one in ours.values() if one is not None), None))
        case dict() if java is None:
            return all(same(None, one) for one in ours.values())
        case dict():
            return all(same(java.get(name), one) for name, one in ours.items())
        case list():
            return java is not None and list(map(same, java, ours)) == [True] * len(java)
        case bytes():
            return java == {"hex": ours.hex()} or java == base64.b64encode(ours).decode()
        case datetime.datetime():
            return same_moment(java, ours.replace(tzinfo=None) - EPOCH)
        case datetime.date():
            if isinstance(java, list):
                return datetime.date(*java) == ours
            return java in (ours.isoformat(), (ours - EPOCH.date()).days)
        case decimal.Decimal():
            text = java["decimal"] if isinstance(java, dict) else str(java)
            return decimal.Decimal(text) == ours
        case str() if type(java) is int:  # Python's JsonSchema writes an enum's value
            return java == int(ours) == Color.GREEN.value
        case int() if isinstance(java, list):  # a time of day
            hour, minute, second, nanos = java
            return ours == ((hour * 60 + minute) * 60 + second) * 1000 + nanos // 10**6
        case float():
            number = float(java)
            if math.isfinite(number) and math.isfinite(ours):  # of four bytes or of eight
                return math.isclose(number, ours, rel_tol=1e-7)
            return str(number) == str(ours)
    return type(java) is type(ours) and java == ours


def same_moment(java: Any, ours: datetime.timedelta) -> bool:
    micros = ours // datetime.timedelta(microseconds=1)
    if isinstance(java, dict):
        return java == {"micros": micros}
    if isinstance(java, list):
        *most, nanos = java
        return datetime.datetime(*most, nanos // 1000) - EPOCH == ours
    return round(decimal.Decimal(str(java)) * 10**6) == micros


def test_all_cases_are_read_as_java_reads_them(others, pulsar_standalone):
    assert len(others) > 50
    wrong: list[Any] = []
    for topic, wanted in others.items():
        case = topic.rpartition("/")[2]
        if case in REFUSED:
            assert "not supported" in wanted[0]["error"]
            with pytest.raises(IncompatibleSchema, match=REFUSED[case]):
                read(pulsar_standalone.service_url, topic, schema="auto")
            continue
        rows = read(pulsar_standalone.service_url, topic, schema="auto")
        assert len(rows) == len(wanted), case
        for number, (java, row) in enumerate(zip(wanted, rows, strict=True)):
            key = None if row["__key"] is None else row["__key"].hex()
            expected = BY_CHARSET.get(case, {number: java.get("value")})[number]
            reason, kept = row.get(MALFORMED_REASON), row.get(MALFORMED_VALUE)
            if number in MALFORMED.get(case, {}):
                is_right = MALFORMED[case][number] in str(reason) and kept.hex() == java["data"]
            else:
                is_right = reason is None and same(expected, value_of(row))
            if not is_right or key != java["key"]:
                wrong.append((case, number, java, row))
    assert not wrong, "\n".join(map(str, wrong))


def test_values_and_keys_as_bytes_equal_javas(others, pulsar_standalone):
    for topic, wanted in others.items():
        if topic.rpartition("/")[2] in REFUSED:
            continue
        rows = read(pulsar_standalone.service_url, topic, schema="bytes")
        found = [(one["value"] or b"", one["__key"]) for one in rows]
        assert found == [
            (bytes.fromhex(one["data"]), None if one["key"] is None else bytes.fromhex(one["key"]))
            for one in wanted
        ]


def test_peek_shows_what_java_reads(others, client: PulsarClient):
    wrong: list[Any] = []
    for topic, wanted in others.items():
        name = TopicName.parse(topic)
        case = name.local
        peek_reader = PeekReader(client, 100, time.monotonic() + 60)
        peek_reader.add_oldest(name, None)
        decoder = ValueDecoder(client, name)
        shown = [decoder.decode(one) for one in peek_reader.found]
        assert len(shown) == len(wanted), case
        for number, (java, one) in enumerate(zip(wanted, shown, strict=True)):
            # Each is decoded by its own version, if that is known.
            unread = number in {**MALFORMED, "changed": {}, "deleted": [0]}.get(case, {})
            if unread or case in REFUSED:
                is_right = one.problem is not None
            else:
                value = BY_CHARSET.get(case, {number: java["value"]})[number]
                is_right = one.problem is None and alike(value, one.value, one.hex)
            if not is_right:
                wrong.append((case, number, java, one))
    assert not wrong, "\n".join(map(str, wrong))


def alike(java: Any, shown: Any, hexadecimal: str | None = None) -> bool:
    """Whether values are equal, except the format of times, decimals and bytes."""
    if isinstance(java, dict) and "hex" in java:
        data = bytes.fromhex(java["hex"])
        return hexadecimal == java["hex"] or shown in (
            f"0x{data.hex()}",
            data.decode(errors="replace"),
        )
    match shown:
        case dict() if shown and all(name.startswith("member") for name in shown):
            return alike(java, next((one for one in shown.values() if one is not None), None))
        case dict():
            return all(alike((java or {}).get(name), one) for name, one in shown.items())
        case list():
            return len(java) == len(shown) and all(map(alike, java, shown))
        case str() if type(java) is int:
            return shown == str(java)
        case str() if isinstance(java, str) and shown.startswith("0x"):
            return shown == f"0x{base64.b64decode(java).hex()}"
        case str() if isinstance(java, str):
            odd = java.lower().replace("infinity", "inf")
            return shown in (java, odd)
        case str() | int() if isinstance(java, list | dict | float):
            return True  # dates, times and decimals, which ``same`` compares
        case float():
            return bool(java == pytest.approx(shown))
    return bool(java == shown)


def test_an_unreadable_message_is_named_with_the_reason_and_a_fix(pulsar_standalone, topic_of):
    for case, (reason,) in ((name, one.values()) for name, one in MALFORMED.items()):
        with pytest.raises(IncompatibleSchema) as caught:
            read(pulsar_standalone.service_url, topic_of(case), schema="auto", mode="failfast")
        assert "The message " in caught.value.message
        assert reason in caught.value.message
        assert "dropmalformed" in str(caught.value.hint)
        rows = read(
            pulsar_standalone.service_url, topic_of(case), schema="auto", mode="dropmalformed"
        )
        assert len(rows) > 0


INNER = json.dumps(
    {"type": "record", "name": "Inner", "fields": [
        {"name": "a", "type": ["null", "int"], "default": None},
        {"name": "b", "type": ["null", "string"], "default": None}]}
)  # fmt: skip


@pytest.mark.parametrize(
    ("case", "schema", "wanted"),
    [
        ("deleted", "avro", [(1, "x")]),
        ("unversioned-json", "json", [(1, "x"), (5, None)]),
        ("changed", "avro", [(1, "x"), None]),
        ("changed", "json", [None, (2, "y")]),
        ("unversioned-string", "string", ["named", "bare"]),
    ],
)
def test_the_users_definition_reads_unregistered_versions(
    pulsar_standalone, topic_of, case, schema, wanted
):
    """Also with failfast: a query of a readable part must be able to begin."""
    given = {"schema": schema} | ({} if schema == "string" else {"schemaDefinition": INNER})
    rows = read(pulsar_standalone.service_url, topic_of(case), **given)
    found = [
        None
        if row[MALFORMED_REASON]
        else row["value"]
        if schema == "string"
        else (row["a"], row["b"])
        for row in rows
    ]
    assert found == wanted
    values_of(
        SourceOptions.parse(
            {"serviceUrl": pulsar_standalone.service_url, "topic": topic_of(case), **given}
        )
    )


@pytest.mark.parametrize(
    ("case", "rows", "schema", "said"),
    [
        ("framed", "SELECT 'c' AS op, NAMED_STRUCT('db', 'x') AS source", "avro", "OFFSET__=5"),
        ("pair-framed-inline", "SELECT NAMED_STRUCT('id', 1) AS key, NAMED_STRUCT('op', 'c', "
         "'source', NAMED_STRUCT('db', 'x')) AS value",
         KeyValueSchema(SinkAvro(), SinkAvro(), "inline"), "OFFSET__=5"),
        ("charset", "SELECT 'text' AS value", "string", "charset=utf-16"),
        ("pair-single-inline", "SELECT 'k' AS key, 1.5D AS value",
         KeyValueSchema(PrimitiveSchema("string"), PrimitiveSchema("double"), "inline"),
         "value.schema.type=INT64"),
    ],
)  # fmt: skip
def test_sinks_refuse_topics_whose_schema_means_other_bytes(
    spark, pulsar_standalone, topic_of, tmp_path, others, case, rows, schema, said
):
    """The broker accepts each of them, because it compares only definitions, which are equal."""
    sink = PulsarSink(
        service_url=pulsar_standalone.service_url, topic=topic_of(case), sink_id=f"s-{case}",
        commit_log=str(tmp_path), schema=schema,
    )  # fmt: skip
    try:
        with pytest.raises(IncompatibleSchema, match=said):
            sink.write(spark.sql(rows), epoch="0")
    finally:
        sink.close()
    after = read(pulsar_standalone.service_url, topic_of(case), schema="bytes")
    assert len(after) == len(others[topic_of(case)])


def test_spark_and_sql_read_the_same(spark, pulsar_standalone, others, topic_of):
    for case in ("pair-framed-separated", "json-jsr310", "unversioned-avro"):
        spark.sql(
            f"CREATE OR REPLACE TEMPORARY VIEW others USING pulsar OPTIONS (serviceUrl "
            f"'{pulsar_standalone.service_url}', topic '{topic_of(case)}', schema 'auto', "
            "mode 'dropmalformed')"
        )
        found = spark.sql("SELECT * FROM others").toArrow().to_pylist()
        left_out = MALFORMED.get(case, {})
        wanted = [one["value"] for n, one in enumerate(others[topic_of(case)]) if n not in left_out]
        pairs = list(zip(wanted, found, strict=True))
        assert [(case, *both) for both in pairs if not same(*both)] == []
