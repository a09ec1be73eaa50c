"""Topics whose records have fields with the names of the message's own columns."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import pulsar
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from eos import PulsarCatalog, PulsarSink
from eos.errors import InputError
from eos.testing import PulsarStandalone
from tests.support.judge import quiet_client

COLUMNS = "id BIGINT, __op STRING, __key STRING, key STRING, value STRUCT<a: BIGINT>"
ROW = {"id": 1, "__op": "u", "__key": "k", "key": "l", "value": {"a": 2}}
VALUES = "1 AS id, 'u' AS __op, 'k' AS __key, 'l' AS key, STRUCT(2L AS a) AS value"


@pytest.fixture
def read(pulsar_standalone: PulsarStandalone, catalog: PulsarCatalog) -> Callable[..., list[Any]]:
    """Read the records and keys of a topic by ``pulsar-client`` and ``fastavro``."""

    def read(topic: str, count: int) -> list[Any]:
        kind = json.loads(catalog.describe(topic).schema_text)
        with contextlib.closing(quiet_client(pulsar_standalone.service_url)) as client:
            reader = client.create_reader(topic, pulsar.MessageId.earliest)
            found = [reader.read_next(timeout_millis=20_000) for _ in range(count)]
        rows = [fastavro.schemaless_reader(io.BytesIO(m.data()), kind, None) for m in found]
        return [(row, message.partition_key()) for row, message in zip(rows, found, strict=True)]

    return read


@pytest.mark.release
def test_all_fields_are_columns_in_sql_and_are_written(
    spark: SparkSession, catalog: PulsarCatalog, read, name: str
):
    catalog.create(name, schema="avro", columns=COLUMNS)
    catalog.mount("fields")
    registered, mounted = catalog.register(name), f"fields.`public/default`.`{name}`"
    for table in (registered, mounted):
        assert spark.table(table).columns == list(ROW)
        spark.sql(f"INSERT INTO {table} SELECT {VALUES}")
    assert read(name, 2) == [(ROW, "")] * 2
    rows = spark.sql(f"SELECT * FROM {registered}").collect()
    assert [row.asDict(recursive=True) for row in rows] == [ROW] * 2
    with pytest.raises(AnalysisException, match="have a field '__key'"):
        catalog.register(name, metadata=["__key"])
    other = catalog.register(name, metadata=["__orderingKey"])
    assert spark.table(other).columns == [*ROW, "__orderingKey"]
    with pytest.raises(Exception, match=r'struct\("id", "__op", "__key", .*, "__orderingKey"\)'):
        spark.sql(f"INSERT INTO {other} SELECT {VALUES}, X'00'")


@pytest.mark.release
def test_a_sink_writes_them_with_metadata_false_and_else_refuses(
    spark: SparkSession,
    catalog: PulsarCatalog,
    read,
    name: str,
    pulsar_standalone: PulsarStandalone,
    tmp_path: Path,
):
    catalog.create(name, schema="avro", columns=COLUMNS)
    url, log = pulsar_standalone.service_url, str(tmp_path / "log")
    options = {"service_url": url, "topic": name, "commit_log": log, "schema": "avro"}
    whole = spark.sql(f"SELECT {VALUES}")
    with contextlib.closing(PulsarSink(sink_id=f"{name}-own", **options)) as sink:
        for frame in (whole, whole.drop("value")):
            with pytest.raises(InputError, match="metadata=False"):
                sink.write(frame, epoch="refused")
    with contextlib.closing(PulsarSink(sink_id=name, metadata=False, **options)) as sink:
        sink.write(whole, epoch="1")
    writer = whole.write.format("pulsar").options(**options, sinkId=f"{name}-w", metadata=False)
    writer.mode("append").save()
    assert read(name, 2) == [(ROW, "")] * 2
    reader = spark.read.format("pulsar").options(serviceUrl=url, topic=name, schema="auto")
    assert reader.load().columns == list(ROW)
    elsewhere = options | {"topic": f"{name}-copy", "create_topics": True}
    copied = reader.load().drop("value").filter("id = 1")  # the source marks fields
    with (
        contextlib.closing(PulsarSink(sink_id=f"{name}-copy", **elsewhere)) as sink,
        pytest.raises(InputError, match="'__key' is a field of the records"),
    ):
        sink.write(copied, epoch="1")
    with pytest.raises(AnalysisException, match="have a field '__key'"):
        reader.option("metadata", True).load()


@pytest.mark.parametrize("odd", ["a.b", "c`d", "e f", "'g'", '"h"', "ä", "SELECT", "KEY"])
def test_odd_names_are_written_or_refused(
    spark: SparkSession, pulsar_standalone: PulsarStandalone, tmp_path: Path, odd: str, name: str
):
    row = spark.createDataFrame([(1,)], [odd])
    sink = PulsarSink(
        sink_id=name,
        service_url=pulsar_standalone.service_url,
        topic=name,
        commit_log=str(tmp_path / "log"),
        create_topics=True,
        schema="json",
    )
    with contextlib.closing(sink):
        if not odd.isascii() or not odd.isalpha():
            with pytest.raises(InputError, match="name that no schema allows"):
                sink.write(row, epoch="1")
            return
        sink.write(row, epoch="1")
    reader = spark.read.format("pulsar").options(
        serviceUrl=pulsar_standalone.service_url, topic=name, schema="auto", metadata=True
    )
    assert reader.load().columns[0] == odd
    assert [row[odd] for row in reader.load().collect()] == [1]
