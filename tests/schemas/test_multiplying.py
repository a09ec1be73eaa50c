"""Short schemas that are recursive, multiply or nest deeply: they are read or refused quickly."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import time
from collections.abc import Iterator
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2

from eos.errors import ConfigurationError, EosError, IncompatibleSchema, InputError
from eos.schemas import AvroSchema, side_by_side
from eos.schemas.reading import SchemaVersion, value_reader
from eos.wire.avro import check_fits, parse_definition
from eos.wire.commands import SchemaInfo, SchemaType

IN_AVROS_LANGUAGE = (SchemaType.AVRO, SchemaType.JSON)


@pytest.fixture(autouse=True)
def _in_seconds() -> Iterator[None]:
    """Each test takes well below a second; the bugs they are for took minutes, or never ended."""
    began = time.monotonic()
    yield
    assert time.monotonic() - began < 10


def registered(definition: Any, kind: SchemaType = SchemaType.AVRO) -> SchemaVersion:
    return SchemaVersion(SchemaInfo(type=kind, data=json.dumps(definition).encode()), 0)


def record(name: str, **fields: Any) -> dict[str, Any]:
    found = [{"name": field, "type": kind} for field, kind in fields.items()]
    return {"type": "record", "name": name, "fields": found}


def doubled(levels: int) -> dict[str, Any]:
    """Each level contains the next one twice, the second time by its name."""
    made = record("r0", leaf="string")
    for level in range(1, levels):
        made = record(f"r{level}", a=made, b=f"r{level - 1}")
    return made


TREE = record("tree", value="int", children={"type": "array", "items": "tree"})
LINKED = record("node", value="int", next=["null", "node"])
BY_OTHERS = record("a", b=["null", record("b", a=["null", "a"])])
OF_MAPS = record("tree", value="int", children={"type": "map", "values": "tree"})


@pytest.mark.parametrize("kind", IN_AVROS_LANGUAGE)
@pytest.mark.parametrize("definition", [TREE, LINKED, BY_OTHERS, OF_MAPS])
def test_a_recursive_schema_is_refused_by_name(
    kind: SchemaType, definition: dict[str, Any]
) -> None:
    with pytest.raises(IncompatibleSchema, match="contains itself") as caught:
        value_reader(registered(definition, kind))
    assert repr(definition["name"]) in str(caught.value)


@pytest.mark.parametrize("kind", IN_AVROS_LANGUAGE)
def test_types_that_multiply_are_refused(kind: SchemaType) -> None:
    assert value_reader(registered(doubled(8), kind)).schema.names == ["a", "b"]
    with pytest.raises(IncompatibleSchema, match="has more than 10000 fields"):
        value_reader(registered(doubled(60), kind))


def protobuf(*messages: tuple[str, list[str]]) -> SchemaVersion:
    """Messages and the types of their fields; "" for strings."""
    file = descriptor_pb2.FileDescriptorProto(name="f.proto", syntax="proto3")
    for name, kinds in messages:
        made = file.message_type.add(name=name)
        for number, kind in enumerate(kinds, 1):
            field = made.field.add(name=f"f{number}", number=number, label=1, type=9)
            if kind:
                field.type, field.type_name = 11, f".{kind}"
    files = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    data = {
        "fileDescriptorSet": base64.b64encode(files).decode(),
        "rootMessageTypeName": messages[0][0],
        "rootFileDescriptorName": "f.proto",
    }
    info = SchemaInfo(type=SchemaType.PROTOBUF_NATIVE, data=json.dumps(data).encode())
    return SchemaVersion(info, 0)


@pytest.mark.parametrize(
    ("width", "levels", "problem"),
    [
        (2, 60, "has more than 10000 fields"),
        (1, 150, "is nested too deeply"),
        (1, 3000, "are not Protobuf descriptors"),
    ],
)
def test_messages_that_multiply_or_are_nested_too_deeply_are_refused(
    width: int, levels: int, problem: str
) -> None:
    inner = [(f"M{level}", [f"M{level + 1}"] * width) for level in range(levels)]
    with pytest.raises(IncompatibleSchema, match=problem):
        value_reader(protobuf(*inner, (f"M{levels}", [""])))


def test_a_union_of_thousands_of_types_by_fastavro_is_read() -> None:
    branches = [record(f"r{number}", n="int") for number in range(4000)]
    definition = record("top", one=["null", *branches])
    schema = fastavro.parse_schema(definition)
    values = []
    for number in (0, 1234, 3999):
        out = io.BytesIO()
        fastavro.schemaless_writer(out, schema, {"one": (f"r{number}", {"n": number})})
        values.append(out.getvalue())
    reader = value_reader(registered(definition))
    found = reader.decode(pa.array(values), writer=registered(definition))
    assert not len(found.failures)
    for row, number in enumerate((0, 1234, 3999)):
        assert found.columns["one"].field(number)[row].as_py() == {"n": number}


@pytest.mark.parametrize(
    ("branches", "named"),
    [
        (["int"] * 4000, "int"),
        (["int", {"type": "int", "logicalType": "date"}], "int"),
        ([{"type": "array", "items": "int"}, {"type": "array", "items": "long"}], "array"),
        (["bytes", {"type": "bytes", "logicalType": "decimal", "precision": 4}], "bytes"),
        ([record("a.b", x="int"), "a.b"], "a.b"),
    ],
)
def test_a_union_with_a_duplicate_type_is_refused(branches: list[Any], named: str) -> None:
    with pytest.raises(ConfigurationError, match=f"a union that has {named} twice"):
        AvroSchema(json.dumps(record("top", one=branches)))


def test_a_union_may_have_several_records() -> None:
    both = [record("a.x", n="int"), record("b.x", n="int"), "null"]
    assert value_reader(registered(record("top", one=both))).schema.names == ["one"]


def test_rows_are_checked_against_mutually_recursive_records() -> None:
    definition: Any = [record("a0", f="int"), record("b0", f="int")]
    column = pa.struct([("f", pa.string())])
    for level in range(1, 40):
        definition = [
            record(f"a{level}", f=definition),
            record(f"b{level}", f=[f"a{level - 1}", f"b{level - 1}"]),
        ]
        column = pa.struct([("f", column)])
    kind = parse_definition(json.dumps(record("top", one=definition)))
    with pytest.raises(InputError, match="the schema requires record a39 or record b39"):
        check_fits(kind, pa.struct([("one", column)]))


def test_defaults_that_multiply_are_refused() -> None:
    made = {"type": "record", "name": "r0", "fields": [
        {"name": "leaf", "type": "string", "default": "x" * 100}
    ]}  # fmt: skip
    for level in range(1, 40):
        made = record(f"r{level}", a=made, b=f"r{level - 1}")
        for field in made["fields"]:
            field["default"] = {}
    top = record("top", n="int", one=made)
    top["fields"][1]["default"] = {}
    with pytest.raises(ConfigurationError, match="default of more than 16384 bytes"):
        AvroSchema(json.dumps(top))


@pytest.mark.parametrize("kind", IN_AVROS_LANGUAGE)
def test_a_recursive_schema_is_shown(kind: SchemaType) -> None:
    wide = record("top", **{f"f{number}": ["null", "top"] for number in range(1000)})
    shown = side_by_side(registered(wide, kind).info, registered(LINKED, kind).info)
    assert "f0" in shown
    assert shown.count("\n") < 100


ODD = {
    "fixed of 10^30": {"type": "fixed", "name": "f", "size": 10**30},
    "fixed of infinity": '{"type": "fixed", "name": "f", "size": 1e400}',
    "decimal of 10^30 digits": {
        "type": "bytes", "logicalType": "decimal", "precision": 10**30, "scale": 10**30,
    },
    "half a pair in a name": '{"type": "record", "name": "\\ud800", "fields": []}',
    "half a pair in a field": '{"type": "record", "name": "r", "fields": '
    '[{"name": "\\udfff", "type": "int"}]}',
    "half a pair in a symbol": '{"type": "enum", "name": "e", "symbols": ["\\ud800"]}',
    "digits": '{"type": "fixed", "name": "f", "size": ' + "9" * 5000 + "}",
    "deep": '{"type":"array","items":' * 3000 + '"int"' + "}" * 3000,
    "a long chain of names": [record("r0", x="int")]
    + [record(f"r{number}", x=f"r{number - 1}") for number in range(1, 3000)],
}  # fmt: skip


@pytest.mark.parametrize("kind", IN_AVROS_LANGUAGE)
@pytest.mark.parametrize("definition", ODD.values(), ids=ODD)
def test_odd_definitions_are_eos_errors(kind: SchemaType, definition: Any) -> None:
    text = definition if isinstance(definition, str) else json.dumps(definition)
    info = SchemaInfo(type=kind, data=text.encode())
    with contextlib.suppress(EosError):
        value_reader(SchemaVersion(info, 0)).decode(pa.array([b"\x00", b"{}"]))
    side_by_side(info, SchemaInfo()).encode()
