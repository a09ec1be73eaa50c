"""Schema properties that change the bytes of values, as in the Java client."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from eos.errors import IncompatibleSchema
from eos.schemas import AvroSchema, KeyValueSchema, PrimitiveSchema, check_plain, check_same_layout
from eos.schemas.reading import SchemaVersion, are_same_values, value_reader
from eos.wire.commands import KeyValue, SchemaInfo, SchemaType
from tests.schemas.reading.reads import decode, has, reasons, record
from tests.wire.avro.kinds import oracle

ID = record(has("id", "int"))
FRAME = b"\0\0\0\0\1"


def schema(
    kind: SchemaType = SchemaType.AVRO, data: object = ID, number: int = 0, **more: str
) -> SchemaVersion:
    properties = tuple(KeyValue(key=key, value=value) for key, value in more.items())
    text = b"" if data is None else json.dumps(data).encode()
    return SchemaVersion(SchemaInfo(type=kind, data=text, properties=properties), number)


def test_framing_is_skipped():
    framed = schema(__AVRO_READ_OFFSET__="5")
    data = FRAME + oracle(ID, {"id": 7})
    found = decode(framed, [data, None, FRAME[:4], FRAME, b"", data])
    assert [row["id"] for row in found.columns.to_pylist()] == [7, None, None, None, None, 7]
    short = "The value is shorter than the 5 bytes of framing that its schema names."
    assert reasons(found) == {2: short, 3: "The field 'id' is truncated.", 4: short}
    values = pa.array([b"x", data, data]).slice(1)
    assert value_reader(framed).decode(values).columns.to_pylist() == [{"id": 7}] * 2


@pytest.mark.parametrize("size", ["0", "-1"])
def test_framing_of_zero_bytes_is_allowed(size):
    found = decode(schema(__AVRO_READ_OFFSET__=size), [oracle(ID, {"id": 7})])
    assert found.columns.to_pylist() == [{"id": 7}]


def test_framing_is_that_of_the_writers_version():
    old, new = schema(__AVRO_READ_OFFSET__="5"), schema(number=1)
    bare = oracle(ID, {"id": 7})
    named = pa.array([bytes(8), bytes(7) + b"\1"])
    versions = {bytes(8): old, bytes(7) + b"\1": new}
    for reader in (value_reader(new), value_reader(new, as_schema=AvroSchema(json.dumps(ID)))):
        found = reader.decode_versions(pa.array([FRAME + bare, bare]), None, named, versions.get)
        assert found.columns.to_pylist() == [{"id": 7}] * 2
        assert reasons(found) == {}
    mine = AvroSchema(
        json.dumps({**ID, "__AVRO_READ_OFFSET__": 5})
    )  # Java reads it from the definition, too
    found = value_reader(None, as_schema=mine).decode(pa.array([FRAME + bare]))
    assert found.columns.to_pylist() == [{"id": 7}]


@pytest.mark.parametrize("size", ["five", "", "99999999999999999999"])
def test_invalid_framing_is_refused_by_name(size):
    with pytest.raises(IncompatibleSchema, match="__AVRO_READ_OFFSET__"):
        decode(schema(__AVRO_READ_OFFSET__=size), [b"\0"])


@pytest.mark.parametrize("encoding", ["INLINE", "SEPARATED"])
def test_key_and_value_of_a_pair_have_separate_framing(encoding):
    key = json.dumps(ID).encode()
    properties = {
        "key.schema.type": "AVRO", "key.schema.properties": '{"__AVRO_READ_OFFSET__":"5"}',
        "value.schema.type": "STRING", "value.schema.properties": '{"__charset":"UTF-16"}',
        "kv.encoding.type": encoding,
    }  # fmt: skip
    info = SchemaInfo(
        type=SchemaType.KEY_VALUE,
        data=len(key).to_bytes(4, "big") + key + bytes(4),
        properties=tuple(KeyValue(key=name, value=one) for name, one in properties.items()),
    )
    keys, values = FRAME + oracle(ID, {"id": 7}), "ä".encode("utf-16")
    if encoding == "INLINE":
        sized = [len(one).to_bytes(4, "big") + one for one in (keys, values)]
        found = value_reader(SchemaVersion(info, 0)).decode(pa.array([b"".join(sized)]))
    else:
        found = value_reader(SchemaVersion(info, 0)).decode(pa.array([values]), pa.array([keys]))
    assert found.columns.to_pylist() == [{"key": {"id": 7}, "value": "ä"}]


@pytest.mark.parametrize(
    ("charset", "data"),
    [
        ("UTF-16", "ä€😀".encode("utf-16")),
        ("UTF-16", "ä€😀".encode("utf-16-be")),  # Java's default without a byte order mark
        ("UTF-16LE", "ä€😀".encode("utf-16-le")),
        ("UTF-32", "ä€😀".encode("utf-32-be")),
        ("UTF-8", "ä€😀".encode()),
        ("GB18030", "ä€😀".encode("gb18030")),
    ],
)
def test_strings_are_read_in_the_encoding_that_their_schema_says(charset, data):
    found = decode(schema(SchemaType.STRING, None, __charset=charset), [data, None, b""])
    assert found.columns.to_pylist() == [{"value": "ä€😀"}, {"value": None}, {"value": ""}]
    assert reasons(found) == {}


def test_text_in_another_encoding_is_malformed():
    found = decode(schema(SchemaType.STRING, None, __charset="UTF-16"), [b"\xd8\0\0", b"\0a"])
    assert reasons(found) == {0: "The value is not utf-16 text."}
    assert found.columns.to_pylist()[1] == {"value": "a"}


@pytest.mark.parametrize("charset", ["x-none", "base64", "zlib", "idna", "punycode", "", "\0"])
def test_an_unknown_encoding_is_refused_by_name(charset):
    with pytest.raises(IncompatibleSchema, match="__charset"):
        decode(schema(SchemaType.STRING, None, __charset=charset), [b"x"])


def pair(value: str, encoding: str = "separated") -> SchemaInfo:
    kinds = {"int64": pa.int64(), "double": pa.float64()}
    kind = pa.struct([("key", pa.string()), ("value", kinds[value])])
    made = KeyValueSchema(PrimitiveSchema("string"), PrimitiveSchema(value), encoding=encoding)
    return made.writer(kind).info


def test_schemas_with_the_same_data_may_have_different_layouts():
    framed, bare = schema(__AVRO_READ_OFFSET__="5").info, schema().info
    utf16 = schema(SchemaType.STRING, None, __charset="UTF-16").info
    text = schema(SchemaType.STRING, None, __charset="US-ASCII").info
    assert pair("int64").data == pair("double").data
    assert not are_same_values(pair("int64"), pair("double"))
    assert are_same_values(pair("int64"), pair("int64", "inline"))
    for named, written, said in (
        (framed, bare, "__AVRO_READ_OFFSET__=5"),
        (utf16, text, "__charset=utf-16"),
        (pair("int64"), pair("double"), "value.schema.type=INT64"),
        (pair("int64"), pair("int64", "inline"), "kv.encoding.type=SEPARATED"),
    ):
        with pytest.raises(IncompatibleSchema, match=said):
            check_same_layout(named, written)
        check_same_layout(written, written)
    for registered, written in ((framed, bare), (utf16, text)):
        with pytest.raises(IncompatibleSchema, match="does not support"):
            check_plain(registered, written)
        check_plain(registered, pair("int64"))  # another type, which the broker checks
    check_plain(pair("int64"), pair("double"))
