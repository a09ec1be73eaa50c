"""The columns of a topic's values: schema versions, the user's schema, pairs."""

from __future__ import annotations

import json
import struct
from typing import Any

import pyarrow as pa
import pytest

from eos.errors import ConfigurationError, IncompatibleSchema
from eos.schemas import (
    AvroSchema,
    JsonSchema,
    KeyValueSchema,
    PrimitiveSchema,
    ProtobufSchema,
    Schema,
)
from eos.schemas._schema_properties import pair_info
from eos.schemas.reading import SchemaVersion, check_readable, value_reader
from eos.wire.commands import SchemaInfo, SchemaType
from tests.schemas.reading.reads import decode, has, reasons, record, version
from tests.wire.avro.kinds import oracle

OLD = record(has("id", "int"), has("gone", "string"))
NEW = record(has("id", "long"), has("name", ["null", "string"], default=None))


def v(number: int) -> bytes:
    """A version in the form of messages."""
    return number.to_bytes(8, "big")


def test_each_message_is_read_with_the_version_that_it_names():
    reader = value_reader(version(SchemaType.AVRO, NEW, 1))
    versions = {v(0): version(SchemaType.AVRO, OLD, 0), v(1): version(SchemaType.AVRO, NEW, 1)}
    rows = [
        (v(1), oracle(NEW, {"id": 2**40, "name": "x"})),
        (v(0), oracle(OLD, {"id": 1, "gone": "y"})),
        (v(0), b"\x02"),
        (v(1), oracle(NEW, {"id": 3, "name": None})),
        (v(1), None),
        (v(0), oracle(OLD, {"id": 4, "gone": ""})),
    ]
    values = pa.array([data for _, data in rows], pa.binary())
    named = pa.array([name for name, _ in rows], pa.binary())
    asked: list[bytes] = []

    def find(name: bytes) -> SchemaVersion:
        asked.append(name)
        return versions[name]

    found = reader.decode_versions(values, None, named, find)
    assert found.columns.to_pylist() == [
        {"id": 2**40, "name": "x"},
        {"id": 1, "name": None},
        {"id": None, "name": None},
        {"id": 3, "name": None},
        {"id": None, "name": None},
        {"id": 4, "name": None},
    ]
    assert reasons(found) == {2: "The field 'gone' is truncated."}
    assert sorted(asked) == [v(0), v(1)]
    one = reader.decode_versions(values[1:3], None, named[1:3], find)
    assert reasons(one) == {1: "The field 'gone' is truncated."}
    none = reader.decode_versions(values[:0], None, named[:0], find)
    assert none.columns.num_rows == 0


UNKNOWN = [
    (None, "names no version"),
    (b"", "names no version"),
    (b"\0", "a schema version of 1 bytes"),
    (bytes(9), "a schema version of 9 bytes"),
    (v(7), "schema version 7, which is not in the registry"),
    (b"\xff" * 8, "schema version -1, which is not in the registry"),
    (v(5), "different kinds"),
]


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (version(SchemaType.AVRO, OLD, 1), b"\0\0"),
        (version(SchemaType.JSON, OLD, 1), b'{"id": 1}'),
        (version(SchemaType.STRING, number=1), b"text"),
        (version(SchemaType.AVRO, record(), 1), b""),
    ],
    ids=["avro", "json", "string", "empty"],
)
def test_a_message_of_an_unknown_version_is_malformed_even_if_its_bytes_fit(kind, data):
    """Java's ``AUTO_CONSUME`` returns bytes; a broker closes the connection for odd versions."""
    reader = value_reader(kind)
    foreign = version(SchemaType.INT32, number=5)

    def find(name: bytes) -> SchemaVersion | None:
        assert len(name) == 8
        assert name < b"\x80"
        return {v(1): kind, v(5): foreign}.get(name)

    named = pa.array([v(1), *(name for name, _ in UNKNOWN), None], pa.binary())
    values = pa.array([data] * (len(UNKNOWN) + 1) + [None], pa.binary())
    found = reader.decode_versions(values, None, named, find)
    assert found.columns.num_rows == len(values)
    if len(reader.schema):
        nulls = [dict.fromkeys(reader.schema.names)]
        assert found.columns.to_pylist()[1:] == nulls * (len(values) - 1)
    failed = reasons(found)
    assert sorted(failed) == list(range(1, len(UNKNOWN) + 1))  # a tombstone is not malformed
    for number, (_, reason) in enumerate(UNKNOWN, 1):
        assert reason in failed[number]
        assert failed[number] in found.refused
        assert found.refused[failed[number]].hint


def test_a_message_of_an_unknown_version_is_read_with_the_users_schema():
    """Like ``Schema.AVRO(Mine.class)``, ``Schema.STRING`` and so on of the Java client."""
    for kind, mine, data in (
        (version(SchemaType.AVRO, NEW, 1), AvroSchema(json.dumps(OLD)), b"\2\2a"),
        (version(SchemaType.JSON, NEW, 1), JsonSchema(json.dumps(OLD)), b'{"id":1,"gone":"a"}'),
        (SchemaVersion(SchemaInfo(type=SchemaType.JSON, data=b'{"type":"object"}'), 1),
         JsonSchema(json.dumps(OLD)), b'{"id":1,"gone":"a"}'),
        (SchemaVersion(SchemaInfo(type=SchemaType.AVRO, data=b"no Avro"), 1),
         AvroSchema(json.dumps(OLD)), b"\2\2a"),
        (version(SchemaType.AVRO, NEW, 1), PrimitiveSchema("string"), b"text"),
        (None, PrimitiveSchema("int8"), b"\7"),
    ):  # fmt: skip
        reader = value_reader(kind, as_schema=mine)
        names = [None, b"", b"\0", bytes(9), v(7)]
        if kind is not None and kind.info.data in (b"no Avro", b'{"type":"object"}'):
            names.append(v(1))  # and an invalid definition
        named = pa.array(names, pa.binary())
        found = reader.decode_versions(
            pa.array([data] * len(named), pa.binary()), None, named, {v(1): kind}.get
        )
        assert reasons(found) == {}
        (only,) = {json.dumps(one) for one in found.columns.to_pylist()}
        assert json.loads(only) in ({"id": 1, "gone": "a"}, {"value": "text"}, {"value": 7})


def test_a_version_with_another_kind_of_key_schema_is_malformed():
    """Brokers accept it, because the data are equal; JSON read as Avro would be nonsense."""

    def pair(key: Schema, number: int) -> SchemaVersion:
        kind = pa.struct([("key", pa.struct([("id", pa.int64())])), ("value", pa.string())])
        return SchemaVersion(
            KeyValueSchema(key, PrimitiveSchema("string")).writer(kind).info, number
        )

    old, new = pair(JsonSchema(), 0), pair(AvroSchema(), 1)
    found = value_reader(new).decode_versions(
        pa.array([b"x", b"y"]), pa.array([b"00", b"\2\0"]), pa.array([v(0), v(1)]),
        {v(0): old, v(1): new}.get,
    )  # fmt: skip
    assert found.columns.to_pylist()[1] == {"key": {"id": 0}, "value": "y"}
    assert "different kinds" in reasons(found)[0]


def test_the_error_for_an_unreadable_version_shows_both_schemas():
    reader = value_reader(version(SchemaType.AVRO, record(has("id", "int")), 7))
    writer = version(SchemaType.AVRO, record(has("id", "string"), has("more", "int")), 3)
    with pytest.raises(IncompatibleSchema) as caught:
        reader.decode(pa.array([b"\x00"]), writer=writer)
    text = [" ".join(line.split()) for line in str(caught.value).splitlines()]
    assert text[0] == (
        "Messages of schema version 3 can't be read with schema version 7: The field 'id' was "
        "written as string, which can't be read as int."
    )
    assert text[1:4] == ["written: avro read: avro", "id string int <-", "more int <-"]


DEFINITION = json.dumps(record(has("id", "long"), has("new", "string", default="none")))


def test_the_users_schema_determines_the_columns():
    registered = version(SchemaType.AVRO, OLD)
    data = oracle(OLD, {"id": 1, "gone": "y"})
    found = decode(registered, [data], AvroSchema(DEFINITION))
    assert found.columns.to_pylist() == [{"id": 1, "new": "none"}]
    assert decode(registered, [data], PrimitiveSchema("bytes")).columns.to_pylist() == [
        {"value": data}
    ]
    text = b'{"id": 5, "gone": "x"}'
    assert decode(None, [text], JsonSchema(DEFINITION)).columns.to_pylist() == [
        {"id": 5, "new": None}
    ]
    assert decode(None, [text]).columns.to_pylist() == [{"value": text}]


@pytest.mark.parametrize(
    "as_schema",
    [
        AvroSchema(json.dumps(record(has("id", "string")))),
        AvroSchema(json.dumps(record(has("id", "int"), has("new", "string")))),
        JsonSchema(DEFINITION),
        PrimitiveSchema("string"),
    ],
)
def test_a_users_schema_that_does_not_fit_is_refused_before_any_message(as_schema):
    with pytest.raises(IncompatibleSchema, match="version 4 can't be read with your schema"):
        check_readable(as_schema, version(SchemaType.AVRO, OLD, 4))


@pytest.mark.parametrize(
    "as_schema", [AvroSchema(), JsonSchema(), ProtobufSchema(), KeyValueSchema()]
)
def test_a_schema_without_a_definition_is_refused_for_reading(as_schema):
    with pytest.raises(ConfigurationError, match="has no definition"):
        value_reader(version(SchemaType.AVRO, OLD), as_schema=as_schema)


@pytest.mark.parametrize(
    "kind", [SchemaType.AVRO, SchemaType.JSON, SchemaType.KEY_VALUE, SchemaType.PROTOBUF_NATIVE]
)
@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"\xff", b"[" * 100_000])
def test_invalid_registered_data_are_an_error(kind, data):
    with pytest.raises(IncompatibleSchema):
        value_reader(SchemaVersion(SchemaInfo(type=kind, data=data), 0))


@pytest.mark.parametrize("kind", [SchemaType.AVRO, SchemaType.JSON])
@pytest.mark.parametrize("levels", [90, 150, 200, 300, 400, 600])
def test_a_deeply_nested_definition_is_read_or_refused(kind, levels):
    text = '"int"'
    for level in range(levels):  # json.dumps does not nest as deeply
        field = f'{{"name":"f","type":["null",{text}]}}'
        text = f'{{"type":"record","name":"r{level}","fields":[{field}]}}'
    registered = SchemaVersion(SchemaInfo(type=kind, data=text.encode()), 0)
    data = b"\x02" * (levels - 1) + b"\x02\x06" if kind == SchemaType.AVRO else b"{}"
    try:
        found = value_reader(registered).decode(pa.array([data]))
    except IncompatibleSchema:
        assert levels > 90
    else:
        assert len(found.failures) == 0


@pytest.mark.parametrize("kind", [3, 22, 99])
def test_unsupported_schema_types_are_named(kind):
    with pytest.raises(IncompatibleSchema, match=r"PROTOBUF|EXTERNAL|99"):
        value_reader(SchemaVersion(SchemaInfo(type=kind), 0))


def test_a_pair_within_a_pair_is_refused_by_name():
    text = SchemaInfo(type=SchemaType.STRING)
    inner = pair_info(text, text, "inline")
    for pair in (pair_info(inner, text, "inline"), pair_info(text, inner, "separated")):
        with pytest.raises(IncompatibleSchema, match="pair within a pair"):
            value_reader(SchemaVersion(pair, 0))


def test_messages_that_lack_a_field_with_a_wrong_default_are_malformed_alone():
    """Brokers accept such definitions; the messages of that version itself don't need it."""
    old, new = (version(SchemaType.AVRO, record(*fields), number) for number, fields in enumerate([
        [has("a", "int")], [has("a", "int"), has("b", "int", default=None)],
    ]))  # fmt: skip
    found = value_reader(new).decode_versions(
        pa.array([b"\2", b"\2\4"]), None, pa.array([v(0), v(1)]), {v(0): old, v(1): new}.get
    )
    assert found.columns.to_pylist()[1] == {"a": 1, "b": 2}
    assert "Field 'b' has the type int, but the default null" in reasons(found)[0]


def test_a_record_without_fields_has_rows_and_no_columns():
    reader = value_reader(version(SchemaType.AVRO, record()))
    found = reader.decode(pa.array([b"", None, b"x"]))
    assert found.columns.num_rows == 3
    assert reader.schema.names == []
    assert reasons(found) == {2: "The value is longer than its schema says."}


def test_a_union_of_several_types_is_one_column():
    registered = version(SchemaType.AVRO, ["int", "string"])
    found = decode(registered, [b"\x00\x02", b"\x02\x02a", None])
    assert found.columns.to_pylist() == [
        {"value": {"member0": 1, "member1": None}},
        {"value": {"member0": None, "member1": "a"}},
        {"value": None},
    ]


PAIRS = pa.StructArray.from_arrays(
    [
        pa.array([{"a": 1}, {"a": 2}, {"a": None}], pa.struct([("a", pa.int64())])),
        pa.array(["x", "", "z"]),
    ],
    names=["key", "value"],
)


@pytest.mark.parametrize("encoding", ["separated", "inline"])
@pytest.mark.parametrize("key", [AvroSchema(), None])
def test_written_pairs_are_read_back(encoding, key):
    schema = KeyValueSchema(key, PrimitiveSchema("string"), encoding=encoding)
    writer = schema.writer(PAIRS.type)
    encoded = writer.encode(PAIRS)
    keys, values = encoded.flatten() if encoding == "separated" else (None, encoded)
    reader = value_reader(SchemaVersion(writer.info, 0))
    found = reader.decode(values, keys)
    assert found.columns.to_pylist() == PAIRS.to_pylist()
    assert reasons(found) == {}


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (
            version(SchemaType.AVRO, OLD),
            [oracle(OLD, {"id": n, "gone": "x" * n}) for n in range(9)],
        ),
        (version(SchemaType.JSON, OLD), [b'{"id":%d,"gone":"x"}' % n for n in range(9)]),
        (version(SchemaType.INT8), [bytes([n]) for n in range(9)]),
        (version(SchemaType.STRING), [b"x" * n for n in range(9)]),
    ],
    ids=["avro", "json", "int8", "string"],
)
def test_a_slice_of_values_is_read_like_its_rows(kind, data):
    values = pa.array([*data[:4], None, b"\xff\xff", *data[4:]], pa.binary())
    reader = value_reader(kind)
    whole = reader.decode(values)
    assert sorted(reasons(whole)) == [5]
    for start, count in ((0, 3), (2, 5), (4, 1), (5, 1), (6, 4)):
        for some in (values, values.cast(pa.large_binary())):
            part = reader.decode(some.slice(start, count))
            assert part.columns.to_pylist() == whole.columns.slice(start, count).to_pylist()
            assert sorted(reasons(part)) == [5 - start] * (start <= 5 < start + count)


def inline(key: bytes | None, value: bytes | None) -> bytes:
    parts = [struct.pack(">i", -1 if one is None else len(one)) + (one or b"")
             for one in (key, value)]  # fmt: skip
    return b"".join(parts)


def pair_version(**properties: str) -> SchemaVersion:
    schema = KeyValueSchema(PrimitiveSchema("string"), PrimitiveSchema("int8"), encoding="inline")
    kind = pa.struct([("key", pa.string()), ("value", pa.int8())])
    return SchemaVersion(schema.writer(kind).info, 0)


def test_a_malformed_inline_pair_fails_alone():
    rows: list[Any] = [
        inline(b"k", b"\x01"),
        inline(b"k", b"\x01")[:-1],
        inline(b"k", b"\x01") + b"x",
        b"\x7f\xff\xff\xff",
        b"\x00\x00\x00\x09k",
        b"\xff\xff\xff\xfe" + inline(b"k", b"\x01"),
        b"",
        inline(None, None),
        inline(b"\xff", b"\x01"),
        inline(b"k", b"12"),
        None,
        inline(b"l", b"\x02"),
    ]
    found = decode(pair_version(), rows)
    good = {0: ("k", 1), 7: (None, None), 10: (None, None), 11: ("l", 2)}
    assert found.columns.to_pylist() == [
        dict(zip(("key", "value"), good.get(number, (None, None)), strict=True))
        for number in range(len(rows))
    ]
    why = reasons(found)
    assert sorted(why) == [1, 2, 3, 4, 5, 6, 8, 9]
    assert why[1] == "The value is not a pair of a key and a value."
    assert why[8] == "In the key: The value is not UTF-8 text."
    assert why[9] == "In the value: The value is not 1 bytes long."


def test_pairs_are_read_with_two_given_schemas():
    key = AvroSchema(json.dumps(record(has("a", ["null", "double"]))))
    writer = KeyValueSchema(value=PrimitiveSchema("string")).writer(PAIRS.type)
    keys, values = writer.encode(PAIRS).flatten()
    wanted = KeyValueSchema(key, PrimitiveSchema("bytes"))
    registered = SchemaVersion(writer.info, 0)
    reader = value_reader(registered, as_schema=wanted)
    found = reader.decode(values, keys)
    versions = pa.array([v(0), v(0), v(0)])
    again = reader.decode_versions(values, keys, versions, lambda _: registered)
    assert again.columns == found.columns
    assert found.columns.to_pylist()[0] == {"key": {"a": 1.0}, "value": b"x"}
    with pytest.raises(IncompatibleSchema, match=r"key\.a"):
        check_readable(
            KeyValueSchema(
                AvroSchema(json.dumps(record(has("a", "boolean")))), PrimitiveSchema("string")
            ),
            SchemaVersion(writer.info, 0),
        )
    with pytest.raises(AssertionError, match="keys"):
        reader.decode(values)
