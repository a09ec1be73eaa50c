"""Values as columns, without Spark or a broker."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2

from eos.errors import ConfigurationError, IncompatibleSchema, InputError
from eos.ids import TopicName
from eos.schemas import ProtobufSchema
from eos.schemas._schema_properties import pair_info
from eos.schemas.reading import SchemaVersion
from eos.sources._value_format import Mode, ValueFormat, lost_fields, own_schema, version_of
from eos.wire.commands import SchemaInfo, SchemaType

TOPIC = TopicName.parse("t")
TEXT = SchemaVersion(SchemaInfo(type=SchemaType.STRING), 0)
MESSAGES = {
    "value": pa.array([b"a", b"\xff", None, b"\xfe", b"c"]),
    "key": pa.nulls(5, pa.binary()),
    "schema_version": pa.array([bytes(8)] * 5),
    "ledger": pa.array([7] * 5),
    "entry": pa.array(range(5)),
    "batch_index": pa.array([-1] * 5),
}


def decoded(mode: Mode) -> tuple[dict[str, list[object]], object]:
    form = pickle.loads(pickle.dumps(ValueFormat(TEXT, None, mode)))  # as it comes to a task
    assert form.schema.names[0] == "value"
    columns, keep = form.decode(TOPIC, MESSAGES, lambda _: TEXT)
    return {name: column.to_pylist() for name, column in columns.items()}, keep


def test_the_first_malformed_message_is_named():
    with pytest.raises(InputError, match=r"The message 7:1:-1 of persistent://public/default/t "):
        decoded(Mode.FAILFAST)


def test_each_malformed_value_is_kept_in_its_row():
    columns, keep = decoded(Mode.PERMISSIVE)
    assert keep is None
    assert columns["value"] == ["a", None, None, None, "c"]
    assert columns["__malformedValue"] == [None, b"\xff", None, b"\xfe", None]
    assert [bool(one) for one in columns["__malformedReason"]] == [False, True, False, True, False]


def test_malformed_rows_are_left_out_and_tombstones_are_not(caplog):
    columns, keep = decoded(Mode.DROPMALFORMED)
    assert keep.to_pylist() == [True, False, True, False, True]
    assert columns["value"][2] is None
    (record,) = caplog.records
    assert (record.malformed, record.topic) == (2, str(TOPIC))


def test_a_message_without_a_version_is_named_with_a_fix():
    unnamed = MESSAGES | {"schema_version": pa.array([bytes(8), bytes(8), None, None, None])}
    form = ValueFormat(TEXT, None, Mode.FAILFAST)
    good = {name: column.take(pa.array([0, 2, 4])) for name, column in unnamed.items()}
    with pytest.raises(IncompatibleSchema, match=r"The message 7:4:-1 of .* names no version") as e:
        form.decode(TOPIC, good, lambda _: TEXT)
    assert "schemaDefinition" in str(e.value.hint)
    assert "dropmalformed" in str(e.value.hint)


@pytest.mark.parametrize(
    ("name", "definition", "complaint"),
    [
        ("avr", None, "schema 'avr' does not exist for reading; choose one of auto, "),
        ("protobuf", None, "auto uses the registered schema"),
        ("avro", None, "needs schemaDefinition"),
        ("auto", "{}", "takes no schemaDefinition"),
        ("string", "{}", "takes no schemaDefinition"),
        ("json", "[", "Avro"),
    ],
)
def test_invalid_schemas_are_refused(name, definition, complaint):
    with pytest.raises(ConfigurationError, match=complaint):
        own_schema(name, definition)


def avro(*fields: Any) -> SchemaInfo:
    declared = {"type": "record", "name": "R", "fields": list(fields)}
    return SchemaInfo(type=SchemaType.AVRO, data=json.dumps(declared).encode())


def has(name: str, kind: Any = "string", **more: Any) -> dict[str, Any]:
    return {"name": name, "type": ["null", kind], "default": None, **more}


def nullable(*fields: Any) -> SchemaInfo:
    record = json.loads(avro(*fields).data)
    return SchemaInfo(type=SchemaType.AVRO, data=json.dumps(["null", record]).encode())


def within(wrap: Callable[[Any], Any], *fields: Any) -> SchemaInfo:
    return avro(has("w", wrap({"type": "record", "name": "In", "fields": list(fields)})))


def message(*fields: tuple[str, int]) -> SchemaInfo:
    """A Protobuf message with these fields, also in messages in it."""
    file = descriptor_pb2.FileDescriptorProto(name="m.proto", syntax="proto3")
    inner, outer = file.message_type.add(name="In"), file.message_type.add(name="M")
    kinds = descriptor_pb2.FieldDescriptorProto
    for name, number in fields:
        inner.field.add(name=name, number=number, type=kinds.TYPE_STRING, label=1)
    pair = outer.nested_type.add(name="MapEntry", options={"map_entry": True})
    pair.field.add(name="key", number=1, type=kinds.TYPE_STRING, label=1)
    for number, (holder, name, label, kind) in enumerate(
        [(outer, "one", 1, ".In"), (outer, "all", 3, ".In"), (outer, "map", 3, ".M.MapEntry")], 1
    ):
        holder.field.add(
            name=name, number=number, label=label, type=kinds.TYPE_MESSAGE, type_name=kind
        )
    pair.field.add(name="value", number=2, label=1, type=kinds.TYPE_MESSAGE, type_name=".In")
    files = descriptor_pb2.FileDescriptorSet(file=[file])
    return ProtobufSchema(files.SerializeToString(), "M").info


def tree(*fields: str) -> SchemaInfo:
    """A Protobuf message with text, and with trees, which contain trees."""
    file = descriptor_pb2.FileDescriptorProto(name="t.proto", syntax="proto3")
    outer, inner = file.message_type.add(name="M"), file.message_type.add(name="Tree")
    kinds = descriptor_pb2.FieldDescriptorProto
    outer.field.add(name="text", number=1, type=kinds.TYPE_STRING, label=1)
    for holder, names in ((outer, fields), (inner, ("below",))):
        for number, name in enumerate(names, 2):
            holder.field.add(
                name=name, number=number, label=1, type=kinds.TYPE_MESSAGE, type_name=".Tree"
            )
    files = descriptor_pb2.FileDescriptorSet(file=[file])
    return ProtobufSchema(files.SerializeToString(), "M").info


def items(one: Any) -> Any:
    return {"type": "array", "items": one}


def values(one: Any) -> Any:
    return {"type": "map", "values": one}


def nest(name: str, *fields: Any) -> Any:
    return {"type": "record", "name": name, "fields": list(fields)}


def doubled(levels: int) -> Any:
    """A record with 2^levels fields, on all levels."""
    kind = nest("R0", has("v"))
    for level in range(1, levels):
        kind = nest(f"R{level}", has("a", kind), has("b", f"R{level - 1}"))
    return kind


def union(*members: Any) -> SchemaInfo:
    return avro(has("y"), {"name": "u", "type": ["null", *members]})


ALIAS = has("new", aliases=["old"])


@pytest.mark.parametrize(
    ("versions", "lost"),
    [
        ([avro(has("x"), has("y")), avro(has("y"))], {"x"}),
        ([avro(has("x"), has("y")), *[avro(has("y"))] * 200], {"x"}),
        # A field with another name keeps its values.
        ([avro(has("old")), avro(ALIAS)], set()),
        ([avro(has("old"), has("new")), avro(ALIAS)], {"old"}),
        ([avro(has("a")), avro(has("b", aliases=["a"]), has("a"))], set()),
        ([within(lambda one: one, has("old"), has("x")), within(lambda one: one, ALIAS)], {"w.x"}),
        ([within(items, has("old"), has("x")), within(items, ALIAS)], {"w.element.x"}),
        ([within(values, has("old"), has("x")), within(values, ALIAS)], {"w.value.x"}),
        ([message(("old", 1)), message(("new", 1))], set()),
        ([message(("old", 1)), message(("new", 2))],
         {"one.old", "all.element.old", "map.value.old"}),
        ([message(("a", 1)), message(("a", 2))],
         {"one.a = 1", "all.element.a = 1", "map.value.a = 1"}),
        # JSON has names only.
        ([replace(avro(has("old")), type=SchemaType.JSON),
          replace(avro(ALIAS), type=SchemaType.JSON)], {"old"}),
        # JSON does not show the member of a union.
        ([replace(avro(has("y"), {"name": "u", "type": ["int", "string"]}, has("x")),
                  type=SchemaType.JSON),
          replace(avro(has("y")), type=SchemaType.JSON)], {"u", "x"}),
        # An unread field may contain its type again, or have any number of fields.
        ([avro(has("y"), has("x", nest("A", has("a", "A")))), avro(has("y"))], {"x"}),
        ([avro(has("y"), has("x", doubled(25))), avro(has("y"))], {"x"}),
        ([tree("x"), tree()], {"x"}),
        # Bytes and nulls lose nothing.
        ([pair_info(avro(has("k")), avro(has("y"), has("x")), "separated"),
          pair_info(SchemaInfo(), avro(has("y")), "separated")], {"value.x"}),
        ([SchemaInfo(type=SchemaType.AVRO, data=b'"null"'), nullable(has("x"))], set()),
        # Members of unions are found by their names.
        ([union(nest("A", has("x"))), union(nest("A", has("x")), nest("B", has("y")))], set()),
        ([union(nest("A", has("x")), nest("B", has("y"))),
          union(nest("B", has("y")), nest("A", has("x")))], set()),
        ([union(nest("A", has("x")), nest("B", has("y"), has("z"))),
          union(nest("B", has("y")), nest("A", has("x"), has("z")))], {"u.member0.z"}),
        ([union(nest("A", has("x")), nest("B", has("y"))), union(nest("B"))], {"u.x", "u.y"}),
    ],
)  # fmt: skip
def test_fields_are_lost_that_the_newest_schema_does_not_read(versions, lost):
    def schema(_: TopicName, version: bytes | None) -> tuple[SchemaInfo, bytes]:
        number = len(versions) - 1 if version is None else int.from_bytes(version, "big")
        return versions[number], number.to_bytes(8, "big")

    client: Any = SimpleNamespace(lookup=SimpleNamespace(schema=schema))
    assert lost_fields(client, TOPIC, version_of(client, TOPIC, None)) == lost
