"""Each writer copies a topic exactly, message for message.

Pulsar's Java client sends and compares; ``pulsar-client`` checks that there are no more messages,
and what keys
look like to its readers.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import fastavro
import pytest
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from eos import AvroSchema, JsonSchema, KeyValueSchema, PulsarCatalog
from eos.testing import PulsarStandalone
from eos.testing.jvm import find_java
from tests.sinks.copies import (
    ADDED,
    Copy,
    JavaClient,
    Sent,
    definition,
    differences,
    records,
    sent,
)
from tests.support.admin import call, create_partitioned
from tests.support.frames import examples
from tests.support.judge import drain

PARTITIONS = 3
OF_MESSAGES = [
    "__key", "__topic", "__messageId", "__publishTime", "__eventTime", "__messageProperties",
    "__partition", "__schemaVersion", "__sequenceId", "__keyIsBinary", "__orderingKey",
    "__isTombstone",
]  # fmt: skip
WRITERS = ["sink", "batch", "stream", "sql"]


@pytest.fixture(scope="module")
def java(pulsar_standalone: PulsarStandalone) -> Iterator[JavaClient]:
    if find_java() is None:
        pytest.skip("there is no Java here: the broker runs in a container")
    client = JavaClient(pulsar_standalone.service_url)
    yield client
    client.close()


@pytest.fixture
def copies(
    spark: SparkSession, pulsar_standalone: PulsarStandalone, tmp_path: Path, make_sink: Any
) -> Callable[..., dict[str, Copy]]:
    """Each writer's way to copy a topic: with all columns of the source, unchanged."""
    url, log = pulsar_standalone.service_url, str(tmp_path / "log")

    def make(schema: str = "bytes") -> dict[str, Copy]:
        reading = {"serviceUrl": url, "metadata": True}
        reading["schema"] = "bytes" if schema == "bytes" else "auto"

        def writing(target: str) -> dict[str, str]:
            return {
                "serviceUrl": url, "topic": target, "sinkId": target, "commitLog": log,
                "schema": schema,
            }  # fmt: skip

        def by_sink(source: str, target: str) -> None:
            df = spark.read.format("pulsar").options(topic=source, **reading).load()
            sink = make_sink(sink_id=target, topic=target, schema=schema, create_topics=False)
            sink.write(df, epoch="copy")

        def by_batch(source: str, target: str) -> None:
            df = spark.read.format("pulsar").options(topic=source, **reading).load()
            df.write.format("pulsar").options(**writing(target)).mode("append").save()

        def by_stream(source: str, target: str) -> None:
            df = (
                spark.readStream.format("pulsar")
                .options(topic=source, startingOffsets="earliest", **reading)
                .load()
            )
            writer = df.writeStream.format("pulsar").options(**writing(target))
            checkpoint = str(tmp_path / f"checkpoint-{target}")
            writer = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True)
            writer.start().awaitTermination(120)

        def by_sql(source: str, target: str) -> None:
            catalog = PulsarCatalog(spark, url, pulsar_standalone.admin_url, commit_log=log)
            names = [catalog.register(topic, metadata=OF_MESSAGES) for topic in (source, target)]
            spark.sql(f"INSERT INTO {names[1]} SELECT * FROM {names[0]}")

        return dict(zip(WRITERS, (by_sink, by_batch, by_stream, by_sql), strict=True))

    return make


@pytest.fixture
def catalog(spark: SparkSession, pulsar_standalone: PulsarStandalone) -> PulsarCatalog:
    return PulsarCatalog(spark, pulsar_standalone.service_url, pulsar_standalone.admin_url)


@pytest.fixture
def read_all(
    java: JavaClient, pulsar_standalone: PulsarStandalone
) -> Callable[[str], list[list[Sent]]]:
    """Read all messages of each partition; ``pulsar-client`` must find as many."""

    def read(topic: str) -> list[list[Sent]]:
        plain = drain(pulsar_standalone.service_url, f"persistent://public/default/{topic}")
        found = []
        for index in range(PARTITIONS):
            exact = f"persistent://public/default/{topic}-partition-{index}"
            mine = [one for one in plain if one.topic == exact]
            messages = java.read(exact, len(mine))
            assert [one.value for one in mine] == [one.value or b"" for one in messages]
            found.append(messages)
        return found

    return read


def check_copies(
    sources: list[Sent],
    name: str,
    java: JavaClient,
    admin_url: str,
    ways: dict[str, Copy],
    read_all: Callable[[str], list[list[Sent]]],
) -> None:
    create_partitioned(admin_url, name, PARTITIONS)
    half = len(sources) // 2
    java.send(name, sources[:half])
    java.send(name, sources[half:], batched=False)
    for way, copy in ways.items():
        target = f"{name}-{way}"
        create_partitioned(admin_url, target, PARTITIONS)
        copy(name, target)
    original = read_all(name)
    assert sum(map(len, original)) == len(sources)
    for way in ways:
        for before, after in zip(original, read_all(f"{name}-{way}"), strict=True):
            assert len(before) == len(after), way
            assert differences(before, after) == [], way


PLAIN = [
    Sent(b"v", b"key0", False),
    Sent(b"v", b"key0", True),  # the same letters, but another key
    Sent(b"v", b"a2V5MA==", False),  # the form of the previous one on the wire
    Sent(b"v", b"\xff\x00", True),
    Sent(b"v", b"", False),
    Sent(None, b"key0", False),
    Sent(None, b"\xfe", True, b"\x00o"),
    Sent(None),  # a tombstone without a key
    Sent(b"", b"k", False, b"", 1, (("", ""), ("a", "ä"))),
    Sent(b"{}", None, None, b"o", 253_402_300_799_999, (("b", "1"), ("a", "2"))),
]


def test_each_writer_copies_a_topic_exactly(java, name, pulsar_standalone, copies, read_all):
    """A hundred messages of any kind, with both kinds of keys, batched and not."""
    sources = PLAIN + examples(sent(st.binary(max_size=20)), 100)
    check_copies(sources, name, java, pulsar_standalone.admin_url, copies(), read_all)


def as_avro(record: dict[str, Any], text: str) -> bytes:
    data = io.BytesIO()
    fastavro.schemaless_writer(data, json.loads(text), record)
    return data.getvalue()


def as_json(record: dict[str, Any], text: str) -> bytes:
    return json.dumps(record).encode()


def without_nulls(value: Any) -> Any:
    """Leave null fields out of a record, which means the same."""
    if isinstance(value, dict):
        return {name: without_nulls(one) for name, one in value.items() if one is not None}
    return [without_nulls(one) for one in value] if isinstance(value, list) else value


ENCODED = {"avro": (AvroSchema, as_avro), "json": (JsonSchema, as_json)}
VERSIONS = [definition(), definition(ADDED)]


def decoded(message: Sent, kind: str) -> Sent:
    """Replace the value by its record, decoded by the version that it names, as text."""
    if message.value is None:
        return message
    record: Any
    if kind == "json":
        record = json.loads(message.value)
    else:
        assert message.schema_version is not None
        text = VERSIONS[int.from_bytes(message.schema_version, "big")]
        record = fastavro.schemaless_reader(io.BytesIO(message.value), json.loads(text), None)
    return replace(message, value=json.dumps(without_nulls(record), sort_keys=True).encode())


def check_typed_copies(
    kind: str,
    count: int,
    name: str,
    java: JavaClient,
    server: PulsarStandalone,
    catalog: PulsarCatalog,
    ways: dict[str, Copy],
) -> None:
    schema, encode = ENCODED[kind]
    topics = [name, *(f"{name}-{way}" for way in ways)]
    for topic in topics:
        catalog.create(topic, partitions=PARTITIONS, schema=schema(VERSIONS[0]))
    for version, text in enumerate(VERSIONS):
        if version:
            body = {"type": kind.upper(), "schema": text, "properties": {}}
            for topic in topics:
                path = f"/v2/schemas/public/default/{topic}/schema"
                call(server.admin_url, "POST", path, body)
        values = records(is_new=bool(version)).map(lambda one, text=text: encode(one, text))
        java.send(name, examples(sent(values), count // 2), plain=False)
    for way, copy in ways.items():
        copy(name, f"{name}-{way}")
    read = [
        [
            [decoded(one, kind) for one in java.read(f"{topic}-partition-{index}", how_many)]
            for index, how_many in enumerate(sizes(server, topic))
        ]
        for topic in topics
    ]
    assert sum(map(len, read[0])) == count // 2 * 2
    for way, copied in zip(ways, read[1:], strict=True):
        for before, after in zip(read[0], copied, strict=True):
            assert len(before) == len(after), way
            assert differences(before, after) == [], way


def sizes(server: PulsarStandalone, topic: str) -> list[int]:
    """Return the number of messages that ``pulsar-client`` finds in each partition."""
    names = [one.topic for one in drain(server.service_url, f"persistent://public/default/{topic}")]
    exact = f"persistent://public/default/{topic}-partition-"
    return [names.count(f"{exact}{index}") for index in range(PARTITIONS)]


@pytest.mark.parametrize("kind", ENCODED)
def test_records_of_several_schema_versions_are_copied_exactly(
    java, name, pulsar_standalone, copies, catalog, kind
):
    ways = {way: copy for way, copy in copies(kind).items() if way in ("batch", "sql")}
    check_typed_copies(kind, 60, name, java, pulsar_standalone, catalog, ways)


@pytest.mark.chaos
@pytest.mark.parametrize("kind", ENCODED)
def test_ten_thousand_records_are_copied_exactly(
    java, name, pulsar_standalone, copies, catalog, kind
):
    ways = copies(kind)
    check_typed_copies(kind, 10_000, name, java, pulsar_standalone, catalog, ways)


@pytest.mark.parametrize("encoding", ["separated", "inline"])
def test_pairs_are_copied_with_their_encoding(
    spark, java, name, pulsar_standalone, copies, make_sink, encoding
):
    source, target = f"{name}-source", f"{name}-target"
    chosen = KeyValueSchema(encoding=encoding)
    key = "'m' AS __key, false AS __keyIsBinary, " if encoding == "inline" else ""
    rows = spark.sql(
        f"""SELECT id AS key, STRUCT(CONCAT('v', id) AS a) AS value, {key}
        CAST(CONCAT('o', id) AS BINARY) AS ordering_key FROM RANGE(5)"""
    ).coalesce(1)
    sink = make_sink(sink_id=source, topic=source, schema=chosen, null_values="tombstone")
    sink.write(rows, epoch="rows")
    if encoding == "separated":
        gone = "SELECT 1L AS key, CAST(NULL AS STRUCT<a: STRING>) AS value, true AS is_tombstone"
        sink.write(spark.sql(gone), epoch="gone")
    count = 5 if encoding == "inline" else 6
    url = pulsar_standalone.service_url
    df = spark.read.format("pulsar").options(serviceUrl=url, topic=source, metadata=True)
    first = make_sink(sink_id=target, topic=target, schema=chosen)
    first.write(df.option("schema", "auto").load(), epoch="copy")
    copies("key_value")["sql"](source, target)  # which uses the registered encoding
    before, after = java.read(source, count), java.read(target, 2 * count)
    assert {one.key_is_binary for one in before} == {encoding == "separated"}
    assert differences(before + before, after) == []


@pytest.mark.chaos
def test_ten_thousand_messages_are_copied_exactly(java, name, pulsar_standalone, copies, read_all):
    sources = PLAIN + examples(sent(st.binary(max_size=200)), 10_000)
    check_copies(sources, name, java, pulsar_standalone.admin_url, copies(), read_all)
