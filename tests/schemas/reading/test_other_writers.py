"""Values that were written by Spark's ``to_json`` and by Pulsar's own Python client."""

from __future__ import annotations

import contextlib
import datetime
import decimal
import json
from typing import Any

import pulsar
import pyarrow as pa
import pytest
from pulsar import schema as theirs

from eos.schemas import JsonSchema
from eos.schemas.reading import SchemaVersion, value_reader
from eos.sinks.dataframe_columns import select_columns
from eos.wire.commands import SchemaType
from tests.schemas.reading.reads import decode, has, logical, reasons, record, version

UTC = datetime.UTC
OWN = record(
    has("b", "boolean"), has("i", "int"), has("l", "long"), has("f", "float"), has("d", "double"),
    has("s", "string"), has("bin", "bytes"),
    has("m", logical("bytes", "decimal", precision=20, scale=4)),
    has("day", logical("int", "date")), has("at", logical("long", "timestamp-micros")),
    has("local", logical("long", "local-timestamp-micros")),
    has("many", {"type": "array", "items": ["null", "long"]}),
    has("inner", record(has("x", "string"), name="inner")),
    has("by", {"type": "map", "values": "int"}),
)  # fmt: skip
ROWS = (
    "SELECT true b, -1 i, 9007199254740993L l, CAST(0.1 AS FLOAT) f, CAST('Infinity' AS DOUBLE) d,"
    " 'a\"\\n\\u00e4' s, X'00FF' bin, CAST('1234567890123456.7890' AS DECIMAL(20,4)) m,"
    " DATE'1900-01-01' day, TIMESTAMP'2026-11-20 12:00:00.123456Z' at,"
    " TIMESTAMP_NTZ'1969-12-31 23:59:59.5' local, array(1L, NULL) many,"
    " named_struct('x', 'y') inner, map('k', 1) by"
)


@pytest.mark.parametrize("by_column", [True, False], ids=["all", "without the map"])
def test_json_written_by_spark_is_read(spark, by_column):
    df = spark.sql(f"{ROWS} UNION ALL SELECT {', '.join(['NULL'] * 14)}")
    definition = OWN
    if not by_column:
        df = df.drop("by")
        definition = {**OWN, "fields": OWN["fields"][:-1]}
    columns = select_columns(df, schema=JsonSchema())
    assert columns.layout.value_type is not None
    info = JsonSchema().writer(columns.layout.value_type).info
    texts = [bytes(row.value.encode()) for row in columns.rows.collect()]
    found = decode(SchemaVersion(info, 0), texts, JsonSchema(json.dumps(definition)))
    assert reasons(found) == {}
    full, empty = found.columns.to_pylist()
    wanted = {
        "b": True, "i": -1, "l": 9007199254740993, "f": pa.scalar(0.1, pa.float32()).as_py(),
        "d": float("inf"), "s": 'a"\n\u00e4', "bin": b"\x00\xff",
        "m": decimal.Decimal("1234567890123456.7890"), "day": datetime.date(1900, 1, 1),
        "at": datetime.datetime(2026, 11, 20, 12, 0, 0, 123456, tzinfo=UTC),
        "local": datetime.datetime(1969, 12, 31, 23, 59, 59, 500000),
        "many": [1, None], "inner": {"x": "y"}, "by": [("k", 1)],
    }  # fmt: skip
    assert full == {name: wanted[name] for name in full}
    assert set(empty.values()) == {None}


class Part(theirs.Record):
    x = theirs.Integer()


class Theirs(theirs.Record):
    id = theirs.Long()
    name = theirs.String()
    data = theirs.Bytes()
    tags = theirs.Array(theirs.String())
    by = theirs.Map(theirs.Double())
    part = Part()


ROW: dict[str, Any] = {
    "id": 2**40, "name": "\u00e4", "data": b"\x00\xff", "tags": ["a", ""], "by": [("k", 0.5)],
    "part": {"x": -1},
}  # fmt: skip


def test_avro_written_by_pulsar_client_is_read(pulsar_standalone, client, name):
    topic = f"persistent://public/default/{name}"
    writer = pulsar.Client(
        pulsar_standalone.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    )
    with contextlib.closing(writer):
        producer = writer.create_producer(topic, schema=theirs.AvroSchema(Theirs))
        producer.send(Theirs(**{**ROW, "by": {"k": 0.5}, "part": Part(x=-1)}))
        producer.send(Theirs(id=1))
    info = client.schema(topic)
    assert info is not None
    with client.reader(topic, columns=("value",)) as reader:
        values = pa.concat_arrays([one["value"] for one in reader.read_to(reader.last_id)])
    found = value_reader(SchemaVersion(info, 0)).decode(values)
    assert reasons(found) == {}
    full, empty = ({name: row[name] for name in ROW} for row in found.columns.to_pylist())
    assert full == ROW
    assert empty == dict.fromkeys(ROW) | {
        "id": 1,
        "part": {"x": None},
    }  # its default for nested records


def nullable(kind: Any) -> Any:
    return record(has("v", ["null", kind], default=None), name="J")


def reflected(kind: str, java_class: str) -> dict[str, str]:
    return {"type": kind, "java-class": java_class}


BIG_DECIMAL = nullable(reflected("string", "java.math.BigDecimal"))
LETTER = record(has("v", reflected("int", "java.lang.Character")), name="J")
DATE = nullable(record(name="Date") | {"namespace": "java.util"})
PAIR = record(has("key", "int"), has("value", "string"), name="PairIntegerString")
MAP = nullable({"type": "array", "items": PAIR, "java-class": "java.util.Map"})
DURATION = nullable(record(has("seconds", "long"), name="java.time.Duration"))
LETTERS = nullable({"type": "array", "items": reflected("int", "java.lang.Character")})
MOMENT = datetime.datetime(2023, 11, 14, 22, 13, 20, 123000, UTC)


@pytest.mark.parametrize(
    ("registered", "text", "mine", "wanted"),
    [
        (BIG_DECIMAL, b'{"v":12345678901234567890.123456789}', None,
         "12345678901234567890.123456789"),
        (nullable(reflected("string", "java.math.BigInteger")),
         b'{"v":123456789012345678901234567890}', None, "123456789012345678901234567890"),
        (BIG_DECIMAL, b'{"v":12.50}', logical("bytes", "decimal", precision=38, scale=9),
         decimal.Decimal("12.5")),
        (BIG_DECIMAL, b'{"v":12.50}', "double", 12.5),
        (LETTER, b'{"v":"x"}', None, 120),  # as in Avro
        (LETTER, b'{"v":"x"}', "string", "x"),
        (DATE, b'{"v":1700000000123}', None, {}),
        (DATE, b'{"v":1700000000123}', logical("long", "timestamp-millis"), MOMENT),
        (MAP, b'{"v":{"1":"a"}}', None, [{"key": 1, "value": "a"}]),
        (MAP, b'{"v":{"1":"a"}}', {"type": "map", "values": "string"}, [("1", "a")]),
        # Not from a client: by Jackson's documentation.
        (DURATION, b'{"v":1.5}', "double", 1.5),
        (LETTERS, b'{"v":"abc"}', "string", "abc"),
    ],
)  # fmt: skip
def test_what_jackson_writes_in_another_way_than_avro_declares_is_read(
    registered, text, mine, wanted
):
    """Definitions and texts of classes by ``Schema.JSON`` of the Java client (4.2.4)."""
    own = None if mine is None else JsonSchema(json.dumps(nullable(mine)))
    found = decode(version(SchemaType.JSON, registered), [text, b'{"v":{"x":[]}}'], own)
    if registered is not DATE or mine is not None:
        assert "of its type" in reasons(found)[1]
    assert found.columns["v"][0].as_py() == wanted
    assert 0 not in reasons(found)
