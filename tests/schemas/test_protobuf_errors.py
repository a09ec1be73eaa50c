"""Values that a Protobuf message does not allow: errors name the field and don't show the data."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from eos.errors import IncompatibleSchema, InputError
from eos.schemas import ProtobufSchema

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
