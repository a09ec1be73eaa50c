"""Definitions that are derived from columns, and changes to registered ones."""

from __future__ import annotations

import base64
import datetime
import io
import json
import re
import time
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from eos.errors import ConfigurationError, IncompatibleSchema, InputError
from eos.schemas import (
    SCHEMA_NAMES,
    AvroSchema,
    JsonSchema,
    KeyValueSchema,
    PrimitiveSchema,
    ProtobufSchema,
    schema_of,
    side_by_side,
)
from eos.schemas._schema_properties import framing_of
from eos.wire.commands import SchemaInfo, SchemaType

ID = pa.field("id", pa.int64(), nullable=False)


def avro(*fields: Any, name: str = "Theirs") -> SchemaInfo:
    declared = {"type": "record", "name": name, "fields": list(fields)}
    return SchemaInfo(type=SchemaType.AVRO, data=json.dumps(declared).encode())


def fields_of(info: SchemaInfo) -> list[Any]:
    return list(json.loads(info.data)["fields"])


def has(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def optional(name: str, kind: Any) -> dict[str, Any]:
    return has(name, ["null", kind], default=None)


INNER = {"type": "record", "name": "In", "fields": [has("a", "long")]}


@pytest.mark.parametrize(
    ("registered", "column", "wanted"),
    [
        # Unchanged: narrower numbers, fields with a default and without a column, another order.
        ([has("x", "string", default=""), has("id", "double")], [pa.field("id", pa.int32())], None),
        # A new field is nullable, even if Spark's column is not.
        ([has("id", "long")], [ID, pa.field("n", pa.string(), nullable=False)],
         [has("id", "long"), optional("n", "string")]),
        # A field without a default and without a column is dropped.
        ([has("id", "long"), has("gone", "string")], [ID], [has("id", "long")]),
        # Another type: the column's, still nullable; a default of the old type is dropped.
        ([has("id", "int", default=7)], [ID], [has("id", "long")]),
        ([optional("id", "int")], [ID], [has("id", ["null", "long"], default=None)]),
        # In records, lists and maps.
        ([has("s", INNER)],
         [pa.field("s", pa.struct([pa.field("a", pa.int64()), pa.field("b", pa.bool_())]))],
         [has("s", {**INNER, "fields": [has("a", "long"), optional("b", "boolean")]})]),
        ([has("l", {"type": "array", "items": ["null", INNER]})],
         [pa.field("l", pa.list_(pa.struct([pa.field("b", pa.bool_())])))],
         [has("l", {"type": "array",
                    "items": ["null", {**INNER, "fields": [optional("b", "boolean")]}]})]),
        ([optional("m", {"type": "map", "values": "int"})],
         [pa.field("m", pa.map_(pa.string(), pa.field("value", pa.int64(), nullable=False)))],
         [optional("m", {"type": "map", "values": "long"})]),
    ],
)  # fmt: skip
def test_a_registered_definition_is_changed_as_little_as_necessary(registered, column, wanted):
    known = avro(*registered)
    writer = AvroSchema().writer(pa.struct(column), known)
    if wanted is None:
        assert writer.info.data == known.data
    else:
        assert json.loads(writer.info.data)["name"] == "Theirs"
        assert fields_of(writer.info) == wanted


@pytest.mark.parametrize(
    ("of_x", "of_y"),
    [(pa.int32(), pa.timestamp("us", "UTC")), (pa.decimal128(9, 2), pa.string())],
)
def test_two_uses_of_one_type_may_get_fields_that_differ(of_x, of_y):
    known = avro(has("x", INNER), has("y", "In"))
    column = pa.struct(
        [
            (name, pa.struct([("a", pa.int64()), ("n", kind)]))
            for name, kind in (("x", of_x), ("y", of_y))
        ]
    )
    x, y = fields_of(AvroSchema().writer(column, known).info)
    assert (x["name"], y["name"]) == ("x", "y")
    assert "n" in json.dumps(x)


def test_a_struct_of_members_extends_the_records_of_a_union():
    known = avro(has("u", ["null", "string", INNER]))
    inner = pa.struct([("a", pa.int64()), ("b", pa.int32())])
    of_members = pa.struct([("member0", pa.string()), ("member1", inner)])
    column = pa.struct([pa.field("u", of_members), pa.field("new", pa.bool_())])
    writer = AvroSchema().writer(column, known)
    grown = {**INNER, "fields": [has("a", "long"), optional("b", "int")]}
    assert fields_of(writer.info) == [
        has("u", ["null", "string", grown]),
        optional("new", "boolean"),
    ]
    rows = [{"u": {"member1": {"a": 1, "b": 2}}}, {"u": {"member0": "x"}, "new": True}]
    data = writer.encode(pa.array(rows, column)).to_pylist()
    assert data == [b"\x04\x02\x02\x04\x00", b"\x02\x02x\x02\x01"]


def struct(**fields: Any) -> pa.DataType:
    return pa.struct(list(fields.items()))


LONG, TEXT = pa.int64(), pa.string()
ONE, TWO = struct(a=LONG), struct(a=LONG, b=TEXT)
GROWN = {**INNER, "fields": [has("a", "long"), optional("b", "string")]}
MOVED = INNER | {"namespace": ""}
OUTER = {"type": "record", "name": "Out", "fields": [has("in", INNER)]}
NODE = optional("next", "Theirs")
SHARED = [has("x", INNER), has("y", "In")]


@pytest.mark.parametrize(
    ("registered", "column", "wanted"),
    [
        # A type that is used twice changes in both places.
        (SHARED, struct(x=TWO, y=TWO), [has("x", GROWN), has("y", "In")]),
        (SHARED, struct(x=ONE, y=TWO), [has("x", GROWN), has("y", "In")]),
        (SHARED, struct(x=TWO, y=ONE), [has("x", GROWN), has("y", "In")]),
        ([has("x", INNER, default={"a": 1}), has("y", "In")], struct(y=TWO),
         [has("x", GROWN, default={"a": 1}), has("y", "In")]),
        # Also in itself.
        ([has("id", "long"), NODE], struct(id=LONG, next=struct(id=LONG, b=TEXT)),
         [has("id", "long"), NODE, optional("b", "string")]),
        # Not if its uses need different types.
        (SHARED, struct(x=ONE, y=struct(a=TEXT)),
         [has("x", INNER), has("y", {"type": "record", "name": "Row_y",
                                     "fields": [optional("a", "string")]})]),
        # A field that defines a type is dropped, or has another type: the next use defines it.
        ([has("x", INNER), has("y", "In"), has("z", ["null", "In"])], struct(y=ONE, z=ONE),
         [has("y", MOVED), has("z", ["null", "In"])]),
        ([has("x", INNER), has("y", {"type": "array", "items": "In"})],
         struct(x=TEXT, y=pa.list_(TWO)),
         [has("x", "string"), has("y", {"type": "array", "items": GROWN | {"namespace": ""}})]),
        ([has("x", OUTER), has("y", "In"), has("z", "Out")], struct(y=ONE, z=struct(**{"in": ONE})),
         [has("y", MOVED),
          has("z", {**OUTER, "fields": [has("in", "In")], "namespace": ""})]),
        ([has("x", enum := {"type": "enum", "name": "E", "symbols": ["A"]}), has("y", "E")],
         struct(y=TEXT), [has("y", enum | {"namespace": ""})]),
        # A new record does not get a registered name.
        ([has("a_b", INNER | {"name": "Row_c"})], struct(c=ONE, a_b=ONE),
         [has("a_b", INNER | {"name": "Row_c"}),
          optional("c", {"type": "record", "name": "Row_c_2", "fields": [optional("a", "long")]})]),
    ],
)  # fmt: skip
def test_registered_types_keep_their_names_wherever_they_are_used(registered, column, wanted):
    known = avro(*registered)
    info = AvroSchema().writer(column, known).info
    assert (json.loads(info.data)["name"], fields_of(info)) == ("Theirs", wanted)
    assert AvroSchema().writer(column, info).info == info


@pytest.mark.parametrize("column", [struct(x=TWO, y=TWO), struct(new=TWO, x=ONE, y=TWO)])
def test_an_extended_definition_reads_what_the_registered_one_wrote(column):
    theirs = {"type": "record", "name": "Theirs", "namespace": "shop", "fields": SHARED}
    known = SchemaInfo(type=SchemaType.AVRO, data=json.dumps(theirs).encode())
    old, new = (
        fastavro.parse_schema(json.loads(info.data), {})
        for info in (known, AvroSchema().writer(column, known).info)
    )
    written = io.BytesIO()
    fastavro.schemaless_writer(written, old, {"x": {"a": 1}, "y": {"a": 2}})
    written.seek(0)
    read = fastavro.schemaless_reader(written, old, new)
    assert (read["x"]["a"], read["y"]) == (1, {"a": 2, "b": None})


@pytest.mark.parametrize(
    "registered",
    [
        SchemaInfo(type=SchemaType.AVRO, data=b"{"),
        SchemaInfo(type=SchemaType.AVRO, data=b"\xff"),
        SchemaInfo(type=SchemaType.AVRO, data=b"[" * 100_000),
        SchemaInfo(type=SchemaType.AVRO, data=b'"string"'),
        SchemaInfo(type=SchemaType.JSON, data=avro(has("id", "long")).data),
        SchemaInfo(type=SchemaType.STRING),
        SchemaInfo(type=99, data=b"?"),
        None,
    ],
)
def test_an_unusable_registered_definition_is_left_to_the_broker(registered):
    writer = AvroSchema().writer(pa.struct([ID]), registered)
    assert json.loads(writer.info.data) == {
        "type": "record",
        "name": "Row",
        "fields": [optional("id", "long")],
    }
    assert side_by_side(registered, writer.info)


@pytest.mark.parametrize("kind", [AvroSchema(), JsonSchema(), ProtobufSchema(), KeyValueSchema()])
@pytest.mark.parametrize(
    "data", [b"", b"{}", b"[]", b'{"fileDescriptorSet": "!"}', b"\xff\xff\xff\xff", b"[" * 100_000]
)
def test_invalid_registered_data_are_ignored(kind, data):
    pair = pa.struct([pa.field("key", pa.int64()), pa.field("value", pa.struct([ID]))])
    column = pair if isinstance(kind, KeyValueSchema) else pa.struct([ID])
    alone = kind.writer(column).info
    for number in (SchemaType.AVRO, SchemaType.JSON, SchemaType.KEY_VALUE, 20, 77):
        odd = SchemaInfo(type=number, data=data)
        assert kind.writer(column, odd).info == alone
        assert side_by_side(odd, alone)


PLAIN = '{"type": "record", "name": "R", "doc": "http://a /* b */", "fields": []}'
COMMENTED = PLAIN.replace('"fields"', '/* "of", // */ "fields"') + " // the end"


@pytest.mark.parametrize("kind", [AvroSchema, JsonSchema])
def test_a_definition_may_have_comments_as_for_javas_avro(kind):
    given = kind("\ufeff// orders\n" + COMMENTED)
    assert json.loads(given.definition) == json.loads(PLAIN)  # as other clients parse it
    assert kind(PLAIN).definition == PLAIN
    registered = SchemaInfo(type=kind.type, data=COMMENTED.encode())
    extended = json.loads(kind().writer(pa.struct([ID]), registered).info.data)
    assert (extended["name"], extended["fields"]) == ("R", [optional("id", "long")])
    offset = COMMENTED.replace('"type"', '"__AVRO_READ_OFFSET__": 5, "type"')
    assert framing_of(SchemaInfo(type=SchemaType.AVRO, data=offset.encode())) == 5
    with pytest.raises(ConfigurationError, match="not JSON"):
        kind("# no comment\n" + PLAIN)


@pytest.mark.parametrize("part", ["/*", '"\\', '{"a": "b" //'])
def test_half_comments_take_no_time(part):
    odd = SchemaInfo(type=SchemaType.AVRO, data=part.encode() * 300_000)
    begun = time.monotonic()
    assert side_by_side(odd, avro())
    assert time.monotonic() - begun < 5


MICROS = {"type": "long", "logicalType": "timestamp-micros"}


def money(scale: int) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": scale}


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (money(2), pa.decimal128(9, 4)),
        (["null", money(2)], pa.decimal128(20, 1)),
        ("bytes", pa.decimal128(9, 2)),
        (money(2), pa.binary()),
        (MICROS, pa.timestamp("us")),
        (MICROS, pa.int64()),
        ("long", pa.timestamp("us", "UTC")),
        ({"type": "long", "logicalType": "timestamp-nanos"}, pa.timestamp("us", "UTC")),
        ({"type": "int", "logicalType": "date"}, pa.int32()),
    ],
)
@pytest.mark.parametrize("nested", [False, True])
def test_numbers_that_would_change_their_meaning_are_refused(theirs, ours, nested):
    column = pa.struct([pa.field("n", ours)])
    registered = avro(has("n", theirs))
    if nested:
        column = pa.struct([pa.field("s", pa.list_(column))])
        inner = {"type": "record", "name": "In", "fields": [has("n", theirs)]}
        registered = avro(optional("s", {"type": "array", "items": ["null", inner]}))
    with pytest.raises(IncompatibleSchema, match=r"would misread the numbers"):
        AvroSchema().writer(column, registered)


def test_a_decimal_that_only_a_sink_can_write_is_refused_with_the_way():
    registered = avro(has("n", money(2) | {"precision": 40}))
    with pytest.raises(IncompatibleSchema, match=r"Cast it to DECIMAL\(38,2\), and write with"):
        AvroSchema().writer(pa.struct([pa.field("n", pa.binary())]), registered)
    fits = AvroSchema().writer(pa.struct([pa.field("n", pa.decimal128(38, 2))]), registered)
    assert fits.info.data == registered.data


@pytest.mark.parametrize("kind", [AvroSchema(), JsonSchema(), ProtobufSchema()])
def test_a_column_that_differs_from_a_field_by_case_is_refused_by_name(kind):
    def column(name: str) -> pa.DataType:
        return pa.struct([ID, pa.field("l", pa.list_(pa.struct([pa.field(name, pa.int8())])))])

    known = kind.writer(column("userId")).info
    with pytest.raises(IncompatibleSchema, match=r"'l\[\]\.userid': .* is called 'userId'"):
        kind.writer(column("userid"), known)


def test_a_decimal_may_grow_and_other_types_are_left_to_the_broker():
    for theirs, ours in ((money(2), pa.decimal128(12, 2)), ("string", pa.timestamp("us", "UTC"))):
        column = pa.struct([pa.field("n", ours)])
        assert AvroSchema().writer(column, avro(has("n", theirs))).info.data


def test_the_other_encoding_of_pairs_is_refused():
    column = pa.struct([pa.field("key", pa.int64()), pa.field("value", pa.string())])
    for one, other in (("inline", "separated"), ("separated", "inline")):
        known = KeyValueSchema(encoding=one).writer(column).info
        with pytest.raises(IncompatibleSchema, match=f"have the encoding '{one}'"):
            KeyValueSchema(encoding=other).writer(column, known)
        assert KeyValueSchema(encoding=one).writer(column, known).info == known


def test_records_of_the_same_name_are_numbered():
    leaf = pa.struct([pa.field("x", pa.int8())])
    column = pa.struct([pa.field("c", pa.struct([pa.field("a", leaf)])), pa.field("c_a", leaf)])
    writer = AvroSchema().writer(column)
    assert b'"Row_c_a_2"' in writer.info.data
    assert writer.encode(pa.array([{"c": {"a": {"x": 1}}, "c_a": {"x": 2}}], column))[0].as_py()


def nodes() -> Any:
    """A recursive Protobuf message with unsigned numbers."""
    file = descriptor_pb2.FileDescriptorProto(name="node.proto", syntax="proto3")
    node = file.message_type.add(name="Node")
    kinds = descriptor_pb2.FieldDescriptorProto
    node.field.add(name="id", number=1, type=kinds.TYPE_UINT64, label=kinds.LABEL_OPTIONAL)
    for name, number, label in (
        ("next", 2, kinds.LABEL_OPTIONAL),
        ("all", 3, kinds.LABEL_REPEATED),
    ):
        field = node.field.add(name=name, number=number, type=kinds.TYPE_MESSAGE, label=label)
        field.type_name = ".Node"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("Node"))


def test_a_recursive_message_is_written_to_the_depth_of_the_columns():
    node = nodes()
    inner = pa.struct([pa.field("id", pa.int64())])
    column = pa.struct([pa.field("id", pa.int32()), pa.field("next", inner)])
    writer = ProtobufSchema.of(node).writer(column)
    (data,) = writer.encode(pa.array([{"id": 1, "next": {"id": 2**40}}], column)).to_pylist()
    assert node.FromString(data) == node(id=1, next=node(id=2**40))
    with pytest.raises(InputError, match="out of range"):
        writer.encode(pa.array([{"id": -1, "next": None}], column))


def test_protobuf_messages_are_extended_in_lists_and_maps():
    def column(*names: str) -> pa.DataType:
        inner = pa.struct([pa.field(name, pa.int8()) for name in names])
        return pa.struct(
            [pa.field("l", pa.list_(inner)), pa.field("m", pa.map_(pa.string(), inner))]
        )

    known = ProtobufSchema().writer(column("a")).info
    writer = ProtobufSchema().writer(column("b", "a"), known)
    rows = [{"l": [{"b": 2, "a": 1}], "m": [("k", {"b": 4, "a": 3})]}]
    (data,) = writer.encode(pa.array(rows, column("b", "a"))).to_pylist()
    assert data == b"\x0a\x04\x08\x01\x10\x02\x12\x09\x0a\x01k\x12\x04\x08\x03\x10\x04"


@pytest.mark.parametrize("name", ["a.b", "a b", "größe", "1a", ""])
@pytest.mark.parametrize("kind", [AvroSchema(), JsonSchema(), ProtobufSchema()])
def test_invalid_names_are_refused(kind, name):
    with pytest.raises(InputError, match="has a name that no schema allows"):
        kind.writer(pa.struct([pa.field(name, pa.int8())]))


def test_dates_and_timestamps_are_text_in_json():
    column = pa.struct(
        [pa.field("d", pa.date32()), pa.field("l", pa.list_(pa.timestamp("us", "UTC")))]
    )
    assert fields_of(JsonSchema().writer(column).info) == [
        optional("d", "string"),
        optional("l", {"type": "array", "items": ["null", "string"]}),
    ]


INSTANT = {"type": "long", "logicalType": "timestamp-micros"}
LOCAL = {"type": "long", "logicalType": "local-timestamp-millis"}
BIG_DECIMAL = {"type": "string", "java-class": "java.math.BigDecimal"}


def test_java_classes_with_times_and_big_decimals_can_be_written_as_json():
    """The definition is that of a class by the Java client (4.2.4), which reads ISO text and
    numbers in these fields."""
    theirs = [
        has("b", ["null", BIG_DECIMAL], default=None),
        has("d", ["null", {"type": "int", "logicalType": "date"}], default=None),
        has("i", ["null", INSTANT], default=None),
        has("l", ["null", LOCAL], default=None),
    ]
    registered = SchemaInfo(type=SchemaType.JSON, data=avro(*theirs).data)
    kinds = {"b": pa.decimal128(20, 9), "d": pa.date32(), "i": pa.timestamp("us", "UTC")}
    column = pa.struct([*kinds.items(), ("l", pa.timestamp("us"))])
    own = JsonSchema(registered.data.decode())
    for schema in (JsonSchema(), own):
        assert schema.writer(column, registered).info.data == registered.data
    more = pa.struct([*column, ("n", pa.date32())])
    assert fields_of(JsonSchema().writer(more, registered).info) == [
        *theirs,
        optional("n", "string"),
    ]
    for name, other in (("i", pa.timestamp("us")), ("l", pa.date32()), ("b", pa.date32())):
        with pytest.raises(InputError, match=f"Column '{name}' is"):
            own.writer(pa.struct([(name, other)]))
    whole = {**BIG_DECIMAL, "java-class": "java.math.BigInteger"}
    integer = JsonSchema(avro(has("b", whole)).data.decode())
    assert integer.writer(pa.struct([("b", pa.decimal128(20, 0))]))
    with pytest.raises(InputError, match=r"requires java\.math\.BigInteger"):
        integer.writer(pa.struct([("b", pa.decimal128(20, 1))]))  # Jackson would cut off 0.5


@pytest.mark.parametrize("name", SCHEMA_NAMES)
def test_a_null_stays_null(name):
    schema = schema_of(name)
    if schema is None or isinstance(schema, KeyValueSchema):
        return
    kinds = {"string": pa.string(), "boolean": pa.bool_(), "date": pa.date32()}
    kinds |= {"float": pa.float32(), "double": pa.float64(), "timestamp": pa.timestamp("us", "UTC")}
    kinds |= {one: pa.struct([ID]) for one in ("avro", "protobuf")}
    kind = pa.string() if name == "json" else kinds.get(name, pa.int8())
    column = pa.array([None, None], kind)
    writer = schema.writer(pa.struct([ID]) if name == "json" else kind)
    assert writer.encode(column).to_pylist() == [None, None]
    assert writer.encode(column.slice(0, 0)).to_pylist() == []


def test_numbers_are_big_endian_and_timestamps_are_rounded_down_to_milliseconds():
    encode = PrimitiveSchema("int32").writer(pa.int16()).encode
    assert encode(pa.array([1, None, -2], pa.int16())).to_pylist() == [
        b"\0\0\0\1", None, b"\xff\xff\xff\xfe",
    ]  # fmt: skip
    moments = pa.array([-1, 1999], pa.timestamp("us", "UTC"))
    encode = PrimitiveSchema("timestamp").writer(moments.type).encode
    assert [int.from_bytes(one, "big", signed=True) for one in encode(moments).to_pylist()] == [
        -1,
        1,
    ]


def test_a_pair_contains_both_schemas():
    column = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.struct([ID]))])
    writer = KeyValueSchema().writer(column)
    properties = {pair.key: pair.value for pair in writer.info.properties}
    assert properties["key.schema.type"] == "STRING"
    assert properties["value.schema.type"] == "AVRO"
    assert properties["kv.encoding.type"] == "SEPARATED"
    value = writer.info.data[8:]
    assert writer.info.data[:8] == b"\0\0\0\0" + len(value).to_bytes(4, "big")
    more = pa.struct(
        [column.field(0), pa.field("value", pa.struct([ID, pa.field("b", pa.bool_())]))]
    )
    again = KeyValueSchema().writer(more, writer.info).info
    assert json.loads(again.data[8:])["fields"] == [
        optional("id", "long"),
        optional("b", "boolean"),
    ]


def test_nested_pairs_and_null_keys_are_refused():
    with pytest.raises(ConfigurationError, match="can't contain"):
        KeyValueSchema(key=KeyValueSchema())
    with pytest.raises(ConfigurationError, match="key must be a schema"):
        KeyValueSchema(key="avro")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="not a record"):
        AvroSchema('["null", "string"]')
    with pytest.raises(ConfigurationError, match="'separated' or 'inline'"):
        KeyValueSchema(encoding="beside")  # type: ignore[arg-type]
    column = pa.array(
        [{"key": None, "value": 1}], pa.struct([("key", pa.string()), ("value", pa.int8())])
    )
    with pytest.raises(InputError, match="A key is null"):
        KeyValueSchema().writer(column.type).encode(column)
    column = pa.array([{"key": "a", "value": None}], column.type)
    with pytest.raises(InputError, match="A value is null"):
        KeyValueSchema(encoding="inline").writer(column.type).encode(column)
    assert KeyValueSchema().writer(column.type).encode(column).field("value").null_count == 1


def test_all_types_of_protobuf_fields_are_written():
    moment = datetime.datetime(2026, 11, 20, 12, 0, 0, 5, tzinfo=datetime.UTC)
    inner = pa.struct([pa.field("b", pa.bool_())])
    column = pa.struct(
        [
            pa.field("t", pa.timestamp("us", "UTC")),
            pa.field("ts", pa.list_(pa.timestamp("us", "UTC"))),
            pa.field("l", pa.list_(inner)),
            pa.field("m", pa.map_(pa.string(), inner)),
            pa.field("n", pa.map_(pa.int32(), pa.int64())),
            pa.field("at", pa.map_(pa.int32(), pa.timestamp("us", "UTC"))),
        ]
    )
    row = {"t": moment, "ts": [moment], "l": [{"b": False}, {"b": None}], "m": [("k", {"b": True})]}
    writer = ProtobufSchema().writer(column)
    files = json.loads(writer.info.data)
    assert (files["rootMessageTypeName"], files["rootFileDescriptorName"]) == ("Row", "row.proto")
    known = descriptor_pb2.FileDescriptorSet.FromString(
        base64.b64decode(files["fileDescriptorSet"])
    )
    assert [file.name for file in known.file] == ["google/protobuf/timestamp.proto", "row.proto"]
    (data,) = writer.encode(
        pa.array([{**row, "n": [(1, 2)], "at": [(1, moment)]}], column)
    ).to_pylist()
    nanos = b"\x08\xc0\xec\x80\xd8\x06\x10\x88\x27"
    wanted = [
        b"\x0a\x09" + nanos, b"\x12\x09" + nanos, b"\x1a\x02\x08\x00\x1a\x00",
        b"\x22\x07\x0a\x01k\x12\x02\x08\x01", b"\x2a\x04\x08\x01\x10\x02",
        b"\x32\x0d\x08\x01\x12\x09" + nanos,
    ]  # fmt: skip
    assert data == b"".join(wanted)


def test_the_file_of_timestamps_is_added_to_a_registered_message():
    known = ProtobufSchema().writer(pa.struct([ID])).info
    column = pa.struct([ID, pa.field("t", pa.timestamp("us", "UTC"))])
    writer = ProtobufSchema().writer(column, known)
    moment = datetime.datetime(1970, 1, 1, 0, 0, 3, tzinfo=datetime.UTC)
    (data,) = writer.encode(pa.array([{"id": 1, "t": moment}], column)).to_pylist()
    assert data == b"\x08\x01\x12\x02\x08\x03"
    assert ProtobufSchema().writer(column, writer.info).info == writer.info


def test_fields_are_compared_and_of_many_only_the_differences_are_shown():
    many = [has(f"f{number}", "long") for number in range(100)]
    text = side_by_side(avro(*many), avro(*many[:-1], has("f99", "string")))
    assert [line.split() for line in text.splitlines()[2:]] == [["f99", "long", "string", "<-"]]
    node = {"type": "record", "name": "Node", "fields": [has("next", ["null", "Node"])]}
    endless = avro(has("node", node))
    assert len(side_by_side(endless, endless).splitlines()) == 2 + 5


def odd_texts(*texts: bytes | None) -> pa.StringArray:
    """Texts that Arrow does not check: as Spark's CAST(X'61FF' AS STRING) makes them."""
    binary = pa.array(texts, pa.binary())
    return pa.Array.from_buffers(pa.string(), len(binary), binary.buffers())


def nested(texts: pa.Array, where: str) -> pa.Array:
    """A column of two records with ``texts`` in a field of type ``where``."""
    ends = pa.array([0, 1, 2], pa.int32())
    match where:
        case "list":
            field: pa.Array = pa.ListArray.from_arrays(ends, texts)
        case "map":
            field = pa.MapArray.from_arrays(ends, pa.array(["a", "b"]), texts)
        case "key":
            field = pa.MapArray.from_arrays(ends, texts, pa.array([1, 2]))
        case _:
            field = texts
    return pa.StructArray.from_arrays([pa.StructArray.from_arrays([field], names=["f"])], ["r"])


@pytest.mark.parametrize("schema", [AvroSchema(), ProtobufSchema()], ids=["avro", "protobuf"])
@pytest.mark.parametrize(
    ("where", "path"), [("", "r.f"), ("list", "r.f[]"), ("map", "r.f{}"), ("key", "r.f{}")]
)
def test_text_that_is_not_utf8_is_refused_by_its_path(schema, where, path):
    """It would be committed, and no reader accept it."""
    column = nested(odd_texts(b"a", b"a\xff"), where)
    encode = schema.writer(column.type).encode
    with pytest.raises(InputError, match=re.escape(f"Field '{path}' has text")) as caught:
        encode(column)
    assert "\\xff" not in str(caught.value)
    assert len(encode(column.slice(0, 1))) == 1
    pair = pa.StructArray.from_arrays([pa.array(["k", "l"]), column], names=["key", "value"])
    with pytest.raises(InputError, match=re.escape(f"Field '{path}' has text")):
        KeyValueSchema(value=schema).writer(pair.type).encode(pair)


def test_only_text_that_is_written_must_be_utf8():
    texts = odd_texts(b"a\xff", b"b")
    with pytest.raises(InputError, match="The value has text that is not UTF-8"):
        PrimitiveSchema("string").writer(texts.type).encode(texts)
    as_bytes = PrimitiveSchema("bytes").writer(texts.type).encode(texts)
    assert as_bytes.cast(pa.binary()).to_pylist() == [b"a\xff", b"b"]
    mask = pa.array([True, False])
    column = pa.StructArray.from_arrays([texts], names=["f"], mask=mask)
    data = AvroSchema().writer(column.type).encode(column)
    assert data.to_pylist() == [None, b"\x02\x02b"]
