"""Columns and values that Protobuf does not allow: errors name the field, and show no data."""

from __future__ import annotations

import base64
import json
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from eos.errors import IncompatibleSchema, InputError
from eos.schemas import ProtobufSchema
from eos.wire.commands import SchemaInfo

KIND = descriptor_pb2.FieldDescriptorProto
INNER = pa.struct([("n", pa.int32()), ("color", pa.string())])
COLUMN = pa.struct(
    [
        ("color", pa.string()),
        ("one", INNER),
        ("many", pa.list_(INNER)),
        ("by", pa.map_(pa.string(), INNER)),
        ("colors", pa.list_(pa.string())),
        ("at", pa.list_(pa.timestamp("us", "UTC"))),
    ]
)


@pytest.fixture(scope="module")
def message() -> Any:
    """A message of proto2 with an enum, and a required field in a record, a list and a map."""
    file = descriptor_pb2.FileDescriptorProto(name="own.proto", syntax="proto2")
    file.dependency.append("google/protobuf/timestamp.proto")
    color = file.enum_type.add(name="Color")
    color.value.add(name="RED", number=1)
    color.value.add(name="BLUE", number=2)
    inner = file.message_type.add(name="Inner")
    inner.field.add(name="n", number=1, label=KIND.LABEL_REQUIRED, type=KIND.TYPE_UINT32)
    top = file.message_type.add(name="Top")
    entry = top.nested_type.add(name="ByEntry")
    entry.options.map_entry = True
    one, many = KIND.LABEL_OPTIONAL, KIND.LABEL_REPEATED
    entry.field.add(name="key", number=1, label=one, type=KIND.TYPE_STRING)
    for declared, name, number, label, kind in (
        (inner, "color", 2, one, "Color"),
        (entry, "value", 2, one, "Inner"),
        (top, "color", 1, one, "Color"),
        (top, "one", 2, one, "Inner"),
        (top, "many", 3, many, "Inner"),
        (top, "by", 4, many, "Top.ByEntry"),
        (top, "colors", 5, many, "Color"),
        (top, "at", 6, many, "google.protobuf.Timestamp"),
    ):
        of = KIND.TYPE_ENUM if kind == "Color" else KIND.TYPE_MESSAGE
        declared.field.add(name=name, number=number, label=label, type=of, type_name=f".{kind}")
    pool = descriptor_pool.DescriptorPool()
    timestamps = descriptor_pb2.FileDescriptorProto()
    descriptor_pool.Default().FindFileByName(file.dependency[0]).CopyToProto(timestamps)
    pool.Add(timestamps)
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("Top"))


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ({"color": "SECRET"}, "Column 'color' has a value other than RED, BLUE"),
        ({"colors": ["RED", "SECRET"]}, "'colors' has a value other than RED, BLUE"),
        ({"one": {"n": 1, "color": "SECRET"}}, r"'one\.color' has a value other than"),
        ({"by": [("SECRET", {"n": -5})]}, r"'by\.n' has a value .* out of range"),
        ({"many": [None]}, "'many' has a value .* null in a list"),
        ({"by": [("SECRET", None)]}, "'by' has a value .* null in a list or map"),
        ({"at": [None]}, "'at' has a value .* null in a list"),
        ({"one": {"n": None}}, r"Columns 'one\.n' are null in a row"),
        ({"many": [{"n": 1}, {"n": None}]}, r"Columns 'many\[\]\.n' are null"),
        ({"by": [("SECRET]", {"n": None})]}, r"Columns 'by\[\]\.n' are null"),
    ],
)
def test_an_invalid_value_is_refused_with_its_fields_name_and_without_the_data(message, row, text):
    writer = ProtobufSchema.of(message).writer(COLUMN)
    with pytest.raises(InputError, match=text) as caught:
        writer.encode(pa.array([row], COLUMN))
    assert "SECRET" not in str(caught.value)


def test_a_changed_type_is_incompatible_with_the_topic_or_invalid_for_a_given_message(
    message,
):
    known = ProtobufSchema().writer(pa.struct([("id", pa.int64())])).info
    with pytest.raises(IncompatibleSchema, match="Column 'id' is string"):
        ProtobufSchema().writer(pa.struct([("id", pa.string())]), known)
    with pytest.raises(InputError, match="Column 'color' is bigint"):
        ProtobufSchema.of(message).writer(pa.struct([("color", pa.int64())]), known)


def registered(file: Any) -> tuple[SchemaInfo, Any]:
    """The schema of the file's first message, and its class by the protobuf package."""
    files = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    name = file.message_type[0].name
    made = message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
    return ProtobufSchema(files, name).info, made


def described(info: SchemaInfo) -> Any:
    """The file that is registered with ``info``."""
    files = base64.b64decode(json.loads(info.data)["fileDescriptorSet"])
    return descriptor_pb2.FileDescriptorSet.FromString(files).file[-1]


@pytest.mark.parametrize(("syntax", "number"), [("proto3", 5), ("proto2", 10)])
def test_a_new_field_takes_no_number_that_older_messages_or_extensions_may_have(syntax, number):
    file = descriptor_pb2.FileDescriptorProto(name="own.proto", syntax=syntax)
    own = file.message_type.add(name="Own")
    for at, name in enumerate(("id", "price", "paid", "due"), 1):
        own.field.add(name=name, number=at, type=KIND.TYPE_INT64, label=KIND.LABEL_OPTIONAL)
    _, old = registered(file)
    del own.field[1:]
    own.reserved_range.add(start=3, end=5)
    own.reserved_range.add(start=2, end=3)
    own.reserved_name.extend(["price", "paid", "due"])
    if syntax == "proto2":
        own.extension_range.add(start=5, end=10)
    info, _ = registered(file)
    column = pa.struct([("id", pa.int64()), ("customer", pa.int64())])
    writer = ProtobufSchema().writer(column, info)
    new_file = described(writer.info)
    _, new = registered(new_file)
    assert new.DESCRIPTOR.fields_by_name["customer"].number == number
    message = new.FromString(old(id=1, price=995, paid=996, due=997).SerializeToString())
    assert not message.HasField("customer")
    # protoc and Go refuse it in proto2.
    assert new_file.message_type[0].field[1].proto3_optional == (syntax == "proto3")
    with pytest.raises(IncompatibleSchema, match=r"'price': .* or reserves"):
        ProtobufSchema().writer(pa.struct([("price", pa.int64())]), info)
    own.reserved_range.add(start=number, end=2**29)
    with pytest.raises(IncompatibleSchema, match="or all field numbers"):
        ProtobufSchema().writer(column, registered(file)[0])


ROW = pa.struct([("n", pa.int64())])


IDS = [("id", pa.int64()), ("_id", pa.string()), ("X_id", pa.string())]
STRUCTS = [("u", ROW), ("u_message", pa.string())]
MAPS = [("x", pa.map_(pa.string(), ROW)), ("x_value", pa.struct([("r", pa.int64())]))]


@pytest.mark.parametrize("fields", [IDS, IDS[::-1], STRUCTS, STRUCTS[::-1], MAPS, MAPS[::-1]])
def test_names_that_protobuf_needs_itself_give_way_to_columns(fields):
    first = ProtobufSchema().writer(pa.struct(fields[:1])).info
    for known in (None, first):
        if known and fields is STRUCTS:  # consumers know the message by this name
            with pytest.raises(IncompatibleSchema, match=r"'u_message': .* uses or reserves"):
                ProtobufSchema().writer(pa.struct(fields), known)
            continue
        file = described(ProtobufSchema().writer(pa.struct(fields), known).info)
        names = [one.name for one in registered(file)[1].DESCRIPTOR.fields]
        assert names == [name for name, _ in fields]
        own = file.message_type[0]
        # C++, Java and Go refuse what is there twice; Python's library lets some of it pass.
        names += [one.name for one in (*own.oneof_decl, *own.nested_type)]
        assert len(names) == len(set(names))


@pytest.mark.parametrize("names", [("foo_bar", "fooBar"), ("a_b", "a__b"), ("Name", "_Name")])
def test_columns_with_one_name_in_protobufs_json_are_refused_by_name(names):
    column = pa.struct([(name, pa.int64()) for name in names])
    known = ProtobufSchema().writer(pa.struct([column.field(0)])).info
    for earlier in (None, known):
        with pytest.raises(InputError, match=f"'{names[0]}' and '{names[1]}' have the same name"):
            ProtobufSchema().writer(column, earlier)


def test_entries_of_maps_are_called_as_protoc_calls_them():
    # C++ and Go refuse others.
    kind = pa.map_(pa.string(), pa.int64())
    info = ProtobufSchema().writer(pa.struct([("fooBar", kind), ("_some_IDs", kind)])).info
    nested = described(info).message_type[0].nested_type
    assert [one.name for one in nested] == ["FooBarEntry", "SomeIDsEntry"]


def test_two_values_of_one_oneof_are_refused_in_a_record_and_in_a_list():
    file = descriptor_pb2.FileDescriptorProto(name="choice.proto", syntax="proto3")
    choice = file.message_type.add(name="Choice")
    choice.oneof_decl.add(name="what")
    for number, name in enumerate(("a", "b", "c"), 1):
        choice.field.add(name=name, number=number, type=KIND.TYPE_INT64, oneof_index=0)
    many = choice.field.add(name="many", number=4, label=KIND.LABEL_REPEATED)
    many.type, many.type_name = KIND.TYPE_MESSAGE, ".Choice"
    files = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    inner = pa.struct([("a", pa.int64()), ("b", pa.int64())])
    column = pa.struct([*inner, ("many", pa.list_(inner))])
    writer = ProtobufSchema(files, "Choice").writer(column)
    for row, names in (
        ({"a": 1, "b": 0}, "'a' and 'b'"),
        ({"a": 1, "many": [{"a": 1}, {"a": 5, "b": 7}]}, r"'many\.a' and 'many\.b'"),
    ):
        with pytest.raises(InputError, match=rf"Columns {names} .*\(oneof what\)"):
            writer.encode(pa.array([row], column))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    made = message_factory.GetMessageClass(pool.FindMessageTypeByName("Choice"))
    (data,) = writer.encode(pa.array([{"b": 0, "many": [{"a": 1}, {"b": 2}]}], column)).to_pylist()
    assert made.FromString(data) == made(b=0, many=[made(a=1), made(b=2)])


@pytest.mark.parametrize("seconds", [-62_135_596_801, 253_402_300_800])
def test_a_timestamp_that_protobuf_does_not_have_is_refused_by_name(seconds):
    kind = pa.timestamp("us", "UTC")
    column = pa.struct([("n", pa.int64()), ("s", pa.struct([("l", pa.list_(kind))]))])
    moments = pa.array([[seconds * 1_000_000]], pa.list_(pa.int64())).cast(pa.list_(kind))
    inner = pa.StructArray.from_arrays([moments], ["l"])
    values = pa.StructArray.from_arrays([pa.array([1]), inner], fields=list(column))
    with pytest.raises(InputError, match=r"'s\.l' has a timestamp outside"):
        ProtobufSchema().writer(column).encode(values)


def test_a_file_that_many_others_import_is_looked_at_once():
    pool = descriptor_pool.DescriptorPool()
    for level in range(60):
        for side in "ab":
            file = descriptor_pb2.FileDescriptorProto(
                name=f"{side}{level}.proto", package=f"{side}{level}"
            )
            file.message_type.add(name="M")
            below = [f"{one}{level - 1}.proto" for one in "ab"]
            file.dependency.extend(below if level else [])
            pool.Add(file)
    made = message_factory.GetMessageClass(pool.FindMessageTypeByName("a59.M"))
    files = descriptor_pb2.FileDescriptorSet.FromString(ProtobufSchema.of(made).files)
    assert len(files.file) == 119


@pytest.mark.parametrize("other", ["_a_b", "ABEntry"])
def test_names_that_a_maps_entries_have_are_refused(other: str):
    kind = pa.map_(pa.string(), pa.int32()) if other == "_a_b" else pa.int32()
    column = pa.struct([("a_b", pa.map_(pa.string(), pa.int32())), (other, kind)])
    with pytest.raises(InputError, match="its map's entries are called ABEntry"):
        ProtobufSchema().writer(column)
