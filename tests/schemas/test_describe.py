"""What people are shown when a topic refuses a changed schema."""

from __future__ import annotations

import pyarrow as pa

from eos.schemas import KeyValueSchema, ProtobufSchema, side_by_side
from eos.wire.commands import SchemaInfo

ID = pa.field("id", pa.int64())


def shown(registered: SchemaInfo, wanted: SchemaInfo) -> list[str]:
    """The lines of fields, one blank between words."""
    return [" ".join(line.split()) for line in side_by_side(registered, wanted).splitlines()[2:]]


def test_the_fields_of_protobuf_stand_side_by_side_with_their_numbers():
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


def test_the_fields_of_pairs_stand_side_by_side():
    record = pa.struct([ID])

    def pair(key: pa.DataType, value: pa.DataType) -> SchemaInfo:
        column = pa.struct([pa.field("key", key), pa.field("value", value)])
        return KeyValueSchema().writer(column).info

    assert shown(pair(pa.int64(), record), pair(pa.string(), record)) == [
        "key int64 string <-",
        "value avro avro",
        "value.id null or long null or long",
    ]
