"""The text for people when a topic refuses a changed schema."""

from __future__ import annotations

import json

import pyarrow as pa

from eos.schemas import (
    AvroSchema,
    KeyValueSchema,
    PrimitiveSchema,
    ProtobufSchema,
    definition_text,
    side_by_side,
)
from eos.wire.commands import SchemaInfo, SchemaType

ID = pa.field("id", pa.int64())


def shown(registered: SchemaInfo, wanted: SchemaInfo) -> list[str]:
    """The lines of fields, with single blanks."""
    return [" ".join(line.split()) for line in side_by_side(registered, wanted).splitlines()[2:]]


def test_protobuf_fields_are_compared_with_their_numbers():
    inner = pa.struct([pa.field("a", pa.float64())])
    old = [ID, pa.field("many", pa.list_(pa.string())), pa.field("at", pa.timestamp("us", "UTC"))]
    new = [ID, pa.field("by", pa.map_(pa.string(), pa.int64())), pa.field("in", inner)]
    has, needs = (ProtobufSchema().writer(pa.struct(one)).info for one in (old, new))
    assert shown(has, needs) == [
        "id int64 = 1 int64 = 1",
        "many repeated string = 2 <-",
        "at Timestamp = 3 <-",
        "by map<string,int64> = 2 <-",
        "in in_message = 3 <-",
        "in.a double = 1 <-",
    ]


def test_the_fields_of_pairs_are_compared():
    record = pa.struct([ID])

    def pair(key: pa.DataType, value: pa.DataType) -> SchemaInfo:
        column = pa.struct([pa.field("key", key), pa.field("value", value)])
        return KeyValueSchema().writer(column).info

    assert shown(pair(pa.int64(), record), pair(pa.string(), record)) == [
        "key int64 string <-",
        "value avro avro",
        "value.id null or long null or long",
    ]


def test_what_is_no_record_is_shown_with_its_type():
    record = AvroSchema().writer(pa.struct([ID])).info
    items = {"type": "array", "items": ["null", {"type": "map", "values": "int"}]}
    for definition, says in (
        (items, "avro: array of null or map of int"),
        ("string", "avro: string"),
        (["null", json.loads(record.data)], "avro"),
    ):
        other = SchemaInfo(type=SchemaType.AVRO, data=json.dumps(definition).encode())
        head = side_by_side(other, record).splitlines()[1]
        assert " ".join(head.split()) == f"the topic has {says} the rows need avro"


def test_a_definition_is_shown_as_lines():
    record = pa.struct([ID])
    avro = definition_text(AvroSchema().writer(record).info)
    assert '\n      "name": "id",\n' in avro
    assert definition_text(ProtobufSchema().writer(record).info) == "id: int64 = 1"
    pair = pa.struct([pa.field("key", pa.int64()), pa.field("value", record)])
    assert definition_text(KeyValueSchema().writer(pair).info) == f"key: int64\nvalue: avro\n{avro}"
    assert definition_text(PrimitiveSchema("string").info) == ""


def test_an_invalid_definition_is_shown_unchanged():
    for data in (b"no json", b"[" * 100_000):
        assert definition_text(SchemaInfo(data=data, type=SchemaType.AVRO)) == data.decode()
    for kind in (SchemaType.PROTOBUF_NATIVE, SchemaType.KEY_VALUE):
        assert "\0" not in definition_text(SchemaInfo(data=b"\0\1", type=kind))
