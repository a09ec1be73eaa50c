"""Protobuf: written messages are read back; fields are matched by number."""

from __future__ import annotations

import base64
import datetime
import json
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import api_pb2, descriptor_pb2

from eos.errors import IncompatibleSchema
from eos.schemas import ProtobufSchema
from eos.schemas._protobuf_schema import message_class
from eos.schemas.reading import SchemaVersion, check_readable
from eos.wire.commands import SchemaInfo, SchemaType
from tests.schemas.reading.reads import decode, reasons

UTC = datetime.UTC
INNER = pa.struct([("a", pa.float64()), ("b", pa.list_(pa.string()))])
COLUMN = pa.struct(
    [
        ("flag", pa.bool_()), ("small", pa.int32()), ("large", pa.int64()), ("f", pa.float32()),
        ("d", pa.float64()), ("text", pa.string()), ("data", pa.binary()),
        ("at", pa.timestamp("us", "UTC")), ("many", pa.list_(pa.int64())), ("inner", INNER),
        ("inners", pa.list_(INNER)), ("by", pa.map_(pa.string(), pa.int64())),
        ("moments", pa.list_(pa.timestamp("us", "UTC"))), ("of", pa.map_(pa.int32(), INNER)),
    ]
)  # fmt: skip
MOMENT = datetime.datetime(1969, 1, 1, 0, 0, 0, 123456, tzinfo=UTC)
IN: dict[str, Any] = {"a": 0.5, "b": ["x"]}
FULL: dict[str, Any] = {
    "flag": False, "small": -1, "large": 2**40, "f": 0.5, "d": 0.1, "text": "", "data": b"\xff",
    "at": MOMENT, "many": [1, 2], "inner": IN, "inners": [IN, {"a": None, "b": []}],
    "by": [("k", 1)], "moments": [MOMENT], "of": [(3, IN)],
}  # fmt: skip
EMPTY: dict[str, Any] = {key: [] if isinstance(one, list) else None for key, one in FULL.items()}


def test_written_values_are_read_back():
    rows = [FULL, dict.fromkeys(FULL), None]
    writer = ProtobufSchema().writer(COLUMN)
    data = writer.encode(pa.array(rows, COLUMN)).to_pylist()
    found = decode(SchemaVersion(writer.info, 0), data)
    assert found.columns.schema == pa.schema(list(COLUMN))
    # Null lists and maps are read as empty ones; a null message as nulls in all columns.
    assert found.columns.to_pylist() == [FULL, EMPTY, dict.fromkeys(FULL)]
    assert reasons(found) == {}


def message(**fields: tuple[int, int]) -> ProtobufSchema:
    """proto3, without ``optional``: name -> number and type."""
    file = descriptor_pb2.FileDescriptorProto(name="mine.proto", syntax="proto3")
    file.enum_type.add(name="Color").value.add(name="RED", number=0)
    made = file.message_type.add(name="Mine")
    for name, (number, kind) in fields.items():
        field = made.field.add(name=name, number=number, type=kind, label=1)
        if kind == field.TYPE_ENUM:
            field.type_name = ".Color"
        if kind == field.TYPE_MESSAGE:
            field.type_name = ".Mine"
    files = descriptor_pb2.FileDescriptorSet(file=[file])
    return ProtobufSchema(files.SerializeToString(), "Mine")


KIND = descriptor_pb2.FieldDescriptorProto
MINE = message(n=(1, KIND.TYPE_UINT64), color=(2, KIND.TYPE_ENUM), name=(3, KIND.TYPE_STRING))
VERSION = SchemaVersion(MINE.info, 0)


def test_a_malformed_message_fails_alone():
    mine = message_class(MINE.files, MINE.message)
    rows = [
        mine(n=1, name="x").SerializeToString(),
        b"\xff",
        mine(n=2**63).SerializeToString(),
        b"\x10\x07",  # the color 7
        b"\x1a\x01\xff",  # a name that is not UTF-8
        b"",
        None,
        mine(n=2).SerializeToString(),
    ]
    found = decode(VERSION, rows)
    none = {"n": None, "color": None, "name": None}
    assert found.columns.to_pylist() == [
        {"n": 1, "color": "RED", "name": "x"}, none, none, none, none,
        {"n": 0, "color": "RED", "name": ""}, none, {"n": 2, "color": "RED", "name": ""},
    ]  # fmt: skip
    assert sorted(reasons(found)) == [1, 2, 3, 4]
    assert reasons(found)[1] == "The value is not a message Mine."


def test_a_text_of_proto2_that_is_not_utf8_is_called_one():
    file = descriptor_pb2.FileDescriptorProto(name="mine.proto", syntax="proto2")
    file.message_type.add(name="Mine").field.add(name="s", number=1, type=KIND.TYPE_STRING, label=1)
    files = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    found = decode(SchemaVersion(ProtobufSchema(files, "Mine").info, 0), [b"\x0a\x01\xff"])
    assert "a text that is not UTF-8" in reasons(found)[0]


def test_fields_are_matched_by_number():
    mine = message_class(MINE.files, MINE.message)
    other = message(title=(3, KIND.TYPE_STRING), new=(9, KIND.TYPE_INT32), n=(1, KIND.TYPE_UINT64))
    found = decode(VERSION, [mine(n=5, name="x").SerializeToString()], other)
    assert found.columns.to_pylist() == [{"title": "x", "new": 0, "n": 5}]


def test_a_field_number_with_another_type_is_refused():
    with pytest.raises(IncompatibleSchema, match="'name' has the number 1") as caught:
        check_readable(message(name=(1, KIND.TYPE_STRING)), VERSION)
    assert "uint64 = 1" in str(caught.value)


NUMBERS = (
    "bool", "int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64",
    "sfixed32", "sfixed64",
)  # fmt: skip


@pytest.mark.parametrize("read", NUMBERS)
@pytest.mark.parametrize("written", NUMBERS)
def test_no_number_silently_becomes_another_one(written, read):
    theirs, ours = (
        message(n=(1, KIND.Type.Value(f"TYPE_{one.upper()}"))) for one in (written, read)
    )
    bits = int(written.removeprefix("bool")[-2:] or 1)
    edge = 2 ** (bits - 1)
    numbers = [0, 1] if bits == 1 else [0, 1, edge - 1]
    if bits > 1:
        numbers += [edge, 2 * edge - 1] if written[0] in "uf" else [-1, -edge]
    mine = message_class(theirs.files, "Mine")
    data = [mine(n=one).SerializeToString() for one in numbers]
    version = SchemaVersion(theirs.info, 0)
    try:
        check_readable(ours, version)
    except IncompatibleSchema:
        # By the protobuf package: a number changes, unless the types have other encodings.
        other = message_class(ours.files, "Mine")
        found = [other.FromString(one).n for one in data]
        assert any(one != n for one, n in zip(found, numbers, strict=True))
        return
    found = decode(version, data, ours)
    failed = reasons(found)
    values = found.columns["n"].to_pylist()
    assert [n for at, n in enumerate(numbers) if at not in failed] == [
        one for at, one in enumerate(values) if at not in failed
    ]


def test_a_recursive_message_is_refused():
    with pytest.raises(IncompatibleSchema, match="its own type"):
        decode(SchemaVersion(message(me=(1, KIND.TYPE_MESSAGE)).info, 0), [])


def test_the_older_protobuf_type_is_read_with_a_given_class():
    mine = message_class(MINE.files, MINE.message)
    registered = SchemaVersion(SchemaInfo(type=SchemaType.PROTOBUF, data=b"{}"), 0)
    with pytest.raises(IncompatibleSchema, match=r"PROTOBUF.*ProtobufSchema\.of"):
        decode(registered, [])
    found = decode(registered, [mine(n=5).SerializeToString()], MINE)
    assert found.columns["n"].to_pylist() == [5]


def test_files_may_come_before_their_dependencies():
    """The Java client registers files in this order."""
    given = ProtobufSchema.of(api_pb2.Method)
    files = descriptor_pb2.FileDescriptorSet.FromString(given.files)
    assert len(files.file) > 2
    turned = descriptor_pb2.FileDescriptorSet(file=reversed(files.file))
    data = json.loads(given.info.data)
    data["fileDescriptorSet"] = base64.b64encode(turned.SerializeToString()).decode()
    info = SchemaInfo(type=SchemaType.PROTOBUF_NATIVE, data=json.dumps(data).encode())
    sent = api_pb2.Method(name="m", request_streaming=True).SerializeToString()
    (row,) = decode(SchemaVersion(info, 0), [sent]).columns.to_pylist()
    assert (row["name"], row["request_streaming"], row["syntax"]) == ("m", True, "SYNTAX_PROTO2")


@pytest.mark.parametrize(
    "name",
    ["HasField", "SerializeToString", "SetInParent", "FindInitializationErrors", "ListFields"],
)
def test_fields_may_be_called_like_the_librarys_methods(name: str):
    inner = pa.struct([(name, pa.int32())])
    column = pa.struct([(name, pa.int32()), ("s", inner), ("l", pa.list_(inner))])
    nested = pa.struct([(name, inner)])
    rows: list[Any] = [
        {name: 5, "s": {name: 6}, "l": [{name: 7}]},
        {name: None, "s": {name: None}, "l": []},
    ]
    for kind, wanted in ((column, rows), (nested, [{name: {name: 1}}, {name: None}])):
        writer = ProtobufSchema().writer(kind)
        data = writer.encode(pa.array(wanted, kind)).to_pylist()
        found = decode(SchemaVersion(writer.info, 0), data)
        assert found.columns.to_pylist() == wanted


def test_an_aliased_symbol_is_read_by_its_first_name():
    """As Java's and the library's own readers do."""
    file = descriptor_pb2.FileDescriptorProto(name="alias.proto", syntax="proto3")
    enum = file.enum_type.add(name="E")
    enum.options.allow_alias = True
    for symbol, number in (("ZERO", 0), ("ONE", 1), ("UNO", 1)):
        enum.value.add(name=symbol, number=number)
    made = file.message_type.add(name="M")
    made.field.add(name="e", number=1, type=14, type_name=".E", label=1)
    files = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    found = decode(SchemaVersion(ProtobufSchema(files, "M").info, 0), [b"\x08\x01", b""])
    assert found.columns.to_pylist() == [{"e": "ONE"}, {"e": "ZERO"}]


def test_timestamps_of_year_1_are_written_whatever_their_zone():
    first = datetime.datetime(1, 1, 1, tzinfo=UTC)
    kind = pa.timestamp("us", "America/New_York")
    times = pa.array([-62_135_596_800_000_000], pa.int64()).view(kind)
    ends = pa.array([0, 1], pa.int32())
    by = pa.MapArray.from_arrays(ends, pa.array(["k"]), times)
    fields = [times, pa.ListArray.from_arrays(ends, times), by]
    column = pa.StructArray.from_arrays(fields, names=["at", "all", "by"])
    writer = ProtobufSchema().writer(column.type)
    found = decode(SchemaVersion(writer.info, 0), writer.encode(column).to_pylist())
    assert found.columns.to_pylist() == [{"at": first, "all": [first], "by": [("k", first)]}]
