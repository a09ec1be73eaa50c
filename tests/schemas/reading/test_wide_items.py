"""Lists of wide records: an item of a few bytes becomes many cells, which are limited."""

from __future__ import annotations

import datetime
import json
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2

from eos.schemas import ProtobufSchema
from eos.schemas.reading import (
    SchemaVersion,
    TooMuchAtOnce,
    _avro_reader,
    _column_reader,
    _json_rows,
    _protobuf_reader,
    value_reader,
)
from eos.wire.avro import _avro_cursor, _avro_decoder
from eos.wire.commands import SchemaInfo, SchemaType
from tests.schemas.reading.reads import decode, has, in_parts, reasons, record, version
from tests.schemas.reading.test_protobuf_reader import COLUMN, FULL

WIDTH = 200
WIDE = record(*(has(f"f{n}", ["null", "long"], default=None) for n in range(WIDTH)), name="w")
ITEMS = has("l", {"type": "array", "items": ["null", WIDE]})
A_MAP = has("m", ["null", {"type": "map", "values": "int"}], default=None)
NARROW = record(has("z", ["null", "long"]), name="w")
OF_NARROW = record(has("l", {"type": "array", "items": ["null", NARROW]}))
TOO_MANY = "The value has more than 1000000 fields in all."
TIME = pa.timestamp("us", "UTC")
MOMENT = datetime.datetime(2026, 11, 30, tzinfo=datetime.UTC)


def json_list(item: str, count: int) -> bytes:
    return b'{"l":[' + ",".join([item] * count).encode() + b"]}"


@pytest.mark.parametrize("item", ["{}", "null", '{"f1":1}'])
@pytest.mark.parametrize("more", [(), (A_MAP,)], ids=["bulk", "rows"])
def test_json(more: Any, item: str, monkeypatch: pytest.MonkeyPatch):
    """With a map each value is read in Python, which needs more memory."""
    monkeypatch.setattr(_avro_reader, "MAX_CELLS", 10 * WIDTH)
    monkeypatch.setattr(_column_reader, "MAX_CELLS", 10 * WIDTH)
    monkeypatch.setattr(_column_reader, "MAX_FIELD_VALUES", 10 * WIDTH)
    found = decode(
        version(SchemaType.JSON, record(ITEMS, *more)),
        [json_list(item, 2), json_list(item, 30), json_list('{"f0":1}', 1)],
    )
    assert reasons(found) == {1: f"The value has more than {10 * WIDTH} empty fields."}
    assert [len(one or ()) for one in found.columns["l"].to_pylist()] == [2, 0, 1]


@pytest.mark.parametrize("more", [(), (A_MAP,)], ids=["bulk", "rows"])
def test_fields_that_are_missing_in_json_are_no_objects(more: Any):
    """Two of 200 in each of 8,000 records: 1,600,000 nulls."""
    value = json_list('{"f0":1,"f1":2}', 8_000)
    found = decode(version(SchemaType.JSON, record(ITEMS, *more)), [value])
    assert not reasons(found)
    assert found.columns["l"][0][7_999].as_py() == {f"f{n}": n + 1 if n < 2 else None
                                                    for n in range(WIDTH)}  # fmt: skip


def test_a_long_json_value_has_a_cell_for_each_of_its_bytes(monkeypatch: pytest.MonkeyPatch):
    """Read in bulk: one that is read in Python has a limit of bytes."""
    monkeypatch.setattr(_avro_reader, "MAX_CELLS", 10 * WIDTH)
    monkeypatch.setattr(_json_rows, "MAX_OBJECT_BYTES", 1000)
    item = json.dumps({"f0": 1, "ignored": "y" * WIDTH})
    found = decode(version(SchemaType.JSON, record(ITEMS)), [json_list(item, 20)])
    assert not reasons(found)


def test_json_in_bulk_is_parsed_in_smaller_parts(monkeypatch: pytest.MonkeyPatch):
    parsed: list[int] = []
    parse = _avro_reader.JsonReader._parse

    def count(self: Any, lines: pa.StringArray) -> pa.Array:
        parsed.append(len(lines))
        return parse(self, lines)

    monkeypatch.setattr(_avro_reader.JsonReader, "_parse", count)
    monkeypatch.setattr(_avro_reader, "MAX_CELLS", 11 * WIDTH)
    values = [json_list("{}", 4) for _ in range(6)]
    found = decode(version(SchemaType.JSON, record(ITEMS)), values)
    assert not reasons(found)
    assert (max(parsed), sum(parsed)) == (2, 6)


def avro_list(count: int) -> bytes:
    number, head = count << 1, bytearray()
    while number >= 0x80:
        head.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*head, number]) + b"\2\0" * count + b"\0"


def test_avro_with_fields_that_the_writer_lacks(monkeypatch: pytest.MonkeyPatch):
    writer = version(SchemaType.AVRO, OF_NARROW)
    reader = value_reader(version(SchemaType.AVRO, record(ITEMS), 1))
    monkeypatch.setattr(_avro_cursor, "MAX_ITEMS", 10 * WIDTH)
    values = pa.array([avro_list(count) for count in (6, 6, 30, 6)])
    found = in_parts(reader, values, writer)
    # Rows that are too much together are read one by one.
    why = "The field 'l[]' has more items than can be read at once."
    assert reasons(found) == {2: why}
    lengths = [len(one or ()) for one in found.columns["l"].to_pylist()]
    assert lengths == [6, 6, 0, 6]


def test_avro_rows_do_not_fail_because_their_defaults_are_many():
    """A default of a list's items: 100 of 800 bytes in each of 8,192 messages."""
    more = record(has("z", ["null", "long"]), has("d", "string", default="x" * 800), name="w")
    writer, reader = (
        version(SchemaType.AVRO, record(has("l", {"type": "array", "items": ["null", one]})), n)
        for n, one in enumerate((NARROW, more))
    )
    value = b"\xc8\1" + b"\2\0" * 100 + b"\0"
    found = in_parts(value_reader(reader), pa.array([value] * 8_192), writer)
    assert not reasons(found)
    assert found.columns["l"][8_191][99].as_py() == {"z": None, "d": "x" * 800}


def protobuf() -> SchemaInfo:
    file = descriptor_pb2.FileDescriptorProto(name="wide.proto", syntax="proto3")
    wide = file.message_type.add(name="Wide")
    for number in range(1, WIDTH + 1):
        wide.field.add(name=f"f{number}", number=number, type=3, label=1)
    top = file.message_type.add(name="Top")
    top.field.add(name="l", number=1, type=11, label=3, type_name=".Wide")
    holder = top.nested_type.add(name="Holder")
    holder.field.add(name="w", number=1, type=11, label=1, type_name=".Wide")
    top.field.add(name="h", number=2, type=11, label=3, type_name=".Top.Holder")
    files = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    return ProtobufSchema(files, "Top").info


@pytest.mark.parametrize(
    ("read", "written", "value"),
    [
        (
            version(SchemaType.AVRO, record(ITEMS), 1),
            version(SchemaType.AVRO, OF_NARROW),
            avro_list(6),
        ),
        (version(SchemaType.JSON, record(ITEMS)), None, json_list("{}", 6)),
        (version(SchemaType.JSON, record(ITEMS, A_MAP)), None, json_list("{}", 6)),
        (SchemaVersion(protobuf(), 0), None, b"\x0a\0" * 6),
    ],
    ids=["avro", "json in bulk", "json in rows", "protobuf"],
)
def test_values_that_fit_alone_may_be_too_much_together(
    read: SchemaVersion, written: SchemaVersion | None, value: bytes, monkeypatch: Any
):
    for module in (_avro_reader, _column_reader):
        monkeypatch.setattr(module, "MAX_CELLS", 10 * WIDTH)
    monkeypatch.setattr(_column_reader, "MAX_FIELD_VALUES", 10 * WIDTH)
    monkeypatch.setattr(_avro_cursor, "MAX_ITEMS", 10 * WIDTH)
    monkeypatch.setattr(_avro_decoder, "_CHUNK_ROWS", 1)
    reader, values = value_reader(read), pa.array([value] * 3)
    with pytest.raises(TooMuchAtOnce):
        reader.decode(values, writer=written)
    assert not reasons(in_parts(reader, values, written))


@pytest.mark.parametrize("item", [b"\x0a\0", b"\x12\2\x0a\0"])
@pytest.mark.parametrize("count", [6_000, 120_000])
def test_protobuf(item: bytes, count: int):
    found = decode(SchemaVersion(protobuf(), 0), [item * 2, item * count, b""])
    assert reasons(found) == {1: TOO_MANY}
    assert [len(one) for one in found.columns["l"].to_pylist() if one] in ([2], [])


def test_absent_messages_of_protobuf_are_nulls_with_as_many_cells():
    """They are no objects: more of them fit."""
    holder = b"\x12\0"
    found = decode(SchemaVersion(protobuf(), 0), [holder * 6_000, holder * 120_000])
    assert reasons(found) == {1: "The value has more than 16777216 empty fields."}
    assert len(found.columns["h"][0]) == 6_000


def test_messages_of_protobuf_are_counted_before_they_become_objects(monkeypatch):
    """In 8 MiB there are four million of them: each took microseconds and a hundred bytes."""
    counted: list[int] = []
    spend = _column_reader.FieldBudget.spend

    def count(self: Any, number: int) -> None:
        counted.append(number)
        spend(self, number)

    monkeypatch.setattr(_column_reader.FieldBudget, "spend", count)
    found = decode(SchemaVersion(protobuf(), 0), [b"\x12\0" * (4 << 20)])
    assert reasons(found) == {0: TOO_MANY}
    assert len(counted) < 10


def test_entries_of_maps_and_times_of_protobuf_are_no_messages(monkeypatch: pytest.MonkeyPatch):
    """A value does not depend on whether its messages were counted."""
    column = pa.struct([("m", pa.map_(pa.string(), pa.int32())), ("t", pa.list_(TIME))])
    row = {"m": [(str(n), n) for n in range(300)], "t": [MOMENT] * 300}
    writer = ProtobufSchema().writer(column)
    data = writer.encode(pa.array([row], column)).to_pylist()
    monkeypatch.setattr(_column_reader, "MAX_FIELD_VALUES", 500)
    for uncounted in (1 << 24, -1):
        monkeypatch.setattr(_protobuf_reader, "_MAX_UNCOUNTED", uncounted)
        found = decode(SchemaVersion(writer.info, 0), data)
        assert not reasons(found)


@pytest.mark.parametrize("beside", [b'{"id":"x","l":[]}', b'{"id":5.0,"l":[]}'])
def test_a_large_value_is_read_beside_one_that_arrow_rejects(beside: bytes, monkeypatch):
    monkeypatch.setattr(_avro_reader, "MAX_FIELD_VALUES", 10 * WIDTH)
    monkeypatch.setattr(_column_reader, "MAX_FIELD_VALUES", 10 * WIDTH)
    of_id = has("id", ["null", "long"], default=None)
    large = json_list('{"f1":1}', 30)
    found = decode(version(SchemaType.JSON, record(of_id, ITEMS)), [large, beside, large])
    assert reasons(found).keys() == ({1} if b"x" in beside else set())
    assert len(found.columns["l"][0]) == 30


def test_nulls_of_fields_are_cells_of_their_record(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(_avro_reader, "MAX_CELLS", 10 * WIDTH)
    alone: list[int] = []
    one_by_one = _avro_reader.JsonReader._one_by_one

    def count(self: Any, texts: pa.StringArray, rows: Any) -> Any:
        alone.extend(rows)
        return one_by_one(self, texts, rows)

    monkeypatch.setattr(_avro_reader.JsonReader, "_one_by_one", count)
    nulls = "{" + ",".join(f'"f{n}": null' for n in range(50)) + "}"
    found = decode(version(SchemaType.JSON, record(ITEMS)), [json_list(nulls, 9)])
    assert len(found.columns["l"][0]) == 9
    assert not alone


def test_protobuf_is_not_parsed_before_its_messages_are_counted():
    """In the library each field of a message takes eight bytes, set or not."""

    def parse(_: bytes) -> None:
        raise AssertionError("parsed")

    reader = _protobuf_reader.ProtobufReader(protobuf())
    reader._message = SimpleNamespace(DESCRIPTOR=reader._message.DESCRIPTOR, FromString=parse)
    for item in (b"\x0a\0", b"\x12\2\x0a\0"):
        _, failures = reader.read(pa.array([item * 120_000]), reader.info)
        assert failures.reasons == [TOO_MANY]


def test_counted_messages_are_read_as_others_are(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(_protobuf_reader, "_MAX_UNCOUNTED", -1)
    writer = ProtobufSchema().writer(COLUMN)
    data = writer.encode(pa.array([FULL, dict.fromkeys(FULL)], COLUMN)).to_pylist()
    found = decode(SchemaVersion(writer.info, 0), [*data, b"\xff"])
    assert found.columns.to_pylist()[0] == FULL
    assert list(reasons(found)) == [2]


@pytest.mark.parametrize("declared_in", ["file", "message"])
def test_extensions_of_proto2_are_passed_over_when_messages_are_counted(
    declared_in: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(_protobuf_reader, "_MAX_UNCOUNTED", -1)
    file = descriptor_pb2.FileDescriptorProto(name="more.proto", syntax="proto2")
    inner, top = file.message_type.add(name="Inner"), file.message_type.add(name="Top")
    for message in (inner, top):
        message.field.add(name="n", number=1, type=5, label=1)
    top.extension_range.add(start=100, end=200)
    (file if declared_in == "file" else inner).extension.add(
        name="more", number=100, type=11, label=1, type_name=".Inner", extendee=".Top"
    )
    files = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    value = b"\x08\7" + b"\xa2\6\2\x08\1"  # n, and the extension
    found = decode(SchemaVersion(ProtobufSchema(files, "Top").info, 0), [value])
    assert found.columns.to_pylist() == [{"n": 7}]
