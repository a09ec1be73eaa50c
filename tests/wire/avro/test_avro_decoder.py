"""Data are read like by ``fastavro``; a malformed row does not affect others."""

from __future__ import annotations

import datetime
import decimal
import io
import json
import tracemalloc
from typing import Any
from unittest import mock

import fastavro
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from eos.errors import IncompatibleSchema
from eos.wire.avro import AvroDecoder, check_fits, encode_avro, parse_definition
from eos.wire.binary_columns import RowFailures
from tests.wire.avro.kinds import KINDS, UTC, arrow_of, logical, oracle

# Data that fastavro accepts: see eos/wire/avro/_avro_decoder.py. With a negative number it counts
# branches and symbols from the end.
STRICTER = (
    "longer than its schema says", "neither true nor false", "more than 32 bits",
    "more than 64 bits", "not one of its enum's symbols", "its union does not have",
)  # fmt: skip


def decoder(writer: Any, reader: Any = None) -> AvroDecoder:
    kinds = [parse_definition(json.dumps(one)) for one in (writer, reader or writer)]
    return AvroDecoder(*kinds)


def decoded(
    writer: Any, data: list[bytes | None], reader: Any = None, *, few_rows: int = 48
) -> tuple[list[Any], RowFailures]:
    """``few_rows``: the most rows whose list items are searched row by row."""
    with mock.patch("eos.wire.avro._skip_batch._FEW_ROWS", few_rows):
        column, failures = decoder(writer, reader).decode(pa.array(data, pa.binary()))
    column.validate(full=True)
    assert column.type == decoder(writer, reader).type
    return column.to_pylist(), failures


def read_by_fastavro(writer: Any, data: bytes, reader: Any = None) -> Any:
    parsed = [fastavro.parse_schema(one, {}) for one in (writer, reader or writer)]
    return fastavro.schemaless_reader(io.BytesIO(data), *parsed)


def takes_no_bytes(definition: Any) -> bool:
    try:
        decoder(definition)
    except IncompatibleSchema:
        return True
    return False


@given(st.data(), st.sampled_from([0, 48]))
def test_rows_written_by_fastavro_are_read(data, few_rows):
    kind = data.draw(KINDS)
    assume(not takes_no_bytes(kind.definition))
    is_union = isinstance(kind.definition, list)
    rows = data.draw(st.lists(kind.values if is_union else st.none() | kind.values, max_size=12))
    written = [
        None if row is None and not is_union else oracle(kind.definition, row) for row in rows
    ]
    found, failures = decoded(kind.definition, written, few_rows=few_rows)
    assert found == arrow_of(rows, kind.arrow).to_pylist()
    assert failures.reasons == []


@given(st.data())
def test_written_values_are_read_back(data):
    kind = data.draw(KINDS)
    assume(not takes_no_bytes(kind.definition) and not isinstance(kind.definition, list))
    column = arrow_of(data.draw(st.lists(st.none() | kind.values, max_size=12)), kind.arrow)
    written = encode_avro(parse_definition(json.dumps(kind.definition)), column)
    found, failures = decoder(kind.definition).decode(written)
    assert found.to_pylist() == column.to_pylist()
    assert len(failures) == 0


def plain(definition: Any) -> Any:
    """The definition without logical types."""
    if isinstance(definition, dict):
        return {key: plain(one) for key, one in definition.items() if key != "logicalType"}
    return [plain(one) for one in definition] if isinstance(definition, list) else definition


def without_pairs(value: Any) -> Any:
    """The value with dicts, fastavro's maps, instead of lists of pairs."""
    if isinstance(value, dict):
        return {key: without_pairs(one) for key, one in value.items()}
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        return {key: without_pairs(one) for key, one in value}
    return [without_pairs(one) for one in value] if isinstance(value, list) else value or None


def blank(value: Any) -> Any:
    """In a column's rows empty maps and lists are equal, and NaN differs from itself."""
    if value != value:
        return "NaN"
    if isinstance(value, dict):
        return {key: blank(one) for key, one in value.items()} or None
    if isinstance(value, list):
        return [blank(one) for one in value] or None
    return value or None


@st.composite
def damaged(draw: st.DrawFn, data: bytes) -> bytes:
    at = draw(st.integers(0, len(data)))
    match draw(st.sampled_from(["cut", "change", "insert", "drop"])):
        case "cut":
            return data[:at]
        case "change":
            return data[:at] + draw(st.binary(min_size=1, max_size=2)) + data[at + 1 :]
        case "insert":
            return data[:at] + draw(st.binary(min_size=1, max_size=12)) + data[at:]
    return data[:at] + data[at + 1 :]


@given(st.data(), st.sampled_from([0, 48]))
def test_a_corrupt_row_fails_like_in_fastavro_and_does_not_affect_others(data, few_rows):
    kind = data.draw(KINDS)
    definition = plain(kind.definition)
    assume(not takes_no_bytes(definition))
    whole = [oracle(kind.definition, data.draw(kind.values)) for _ in range(3)]
    broken = [data.draw(damaged(one)) for one in whole]
    rows = [row for pair in zip(whole, broken, strict=True) for row in pair]
    found, failures = decoded(definition, rows, few_rows=few_rows)
    reasons = dict(zip(failures.rows.tolist(), failures.reasons, strict=True))
    assert not reasons.keys() & {0, 2, 4}
    for number, row in enumerate(rows):
        if number not in reasons:
            assert blank(without_pairs(found[number])) == blank(read_by_fastavro(definition, row))
        elif not any(one in reasons[number] for one in STRICTER):
            with pytest.raises((EOFError, IndexError, UnicodeDecodeError, OverflowError)):
                read_by_fastavro(definition, row)


def branch_name(definition: Any) -> str:
    """The name that a union may have only once."""
    if isinstance(definition, str):
        return definition
    is_decimal = definition.get("logicalType") == "decimal"
    return "bytes" if is_decimal else str(definition.get("name", definition["type"]))


@given(st.data())
def test_in_a_union_of_several_types_each_has_a_column(data):
    kinds = data.draw(st.lists(KINDS, min_size=2, max_size=4))
    kinds = [kind for kind in kinds if not isinstance(kind.definition, list)]
    names = {branch_name(kind.definition) for kind in kinds}
    assume(len(names) == len(kinds) > 1 and not names & {"int", "float"})
    branches = [kind.definition for kind in kinds]
    assume(not any(map(takes_no_bytes, branches)))
    rows: list[tuple[int, Any]] = data.draw(
        st.lists(
            st.integers(0, len(kinds) - 1).flatmap(
                lambda one: st.tuples(st.just(one), kinds[one].values)
            )
        )
    )
    written = [bytes([index << 1]) + oracle(branches[index], value) for index, value in rows]
    found, failures = decoded([*branches, "null"], [*written, bytes([len(kinds) << 1])])
    assert failures.reasons == []
    assert found[-1] is None
    for (index, value), row in zip(rows, found, strict=False):
        wanted = dict.fromkeys(row)
        wanted[f"member{index}"] = arrow_of([value], kinds[index].arrow).to_pylist()[0]
        assert row == wanted
    # What was read is written as it was.
    union = parse_definition(json.dumps([*branches, "null"]))
    column = pa.array(found, decoder([*branches, "null"]).type)
    check_fits(union, column.type)
    assert encode_avro(union, column).drop_null().to_pylist() == written


SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**53), 2**53),
    "float": st.floats(width=32, allow_nan=False, allow_infinity=False),
    "double": st.floats(allow_nan=False),
    "string": st.text(st.characters(codec="utf-8"), max_size=4),
    "bytes": st.binary(max_size=4).filter(lambda one: one.isascii()),
    "boolean": st.booleans(),
}
PROMOTED = {
    "int": ["int", "long", "double"],
    "long": ["long", "double"],
    "float": ["float", "double"],
    "string": ["string", "bytes"],
    "bytes": ["bytes", "string"],
}


@given(st.data())
def test_another_readers_schema_gives_the_rows_of_fastavro(data):
    names = data.draw(st.lists(st.sampled_from(list(SCALARS)), max_size=6))
    written = [{"name": f"f{number}", "type": name} for number, name in enumerate(names)]
    fields: list[dict[str, Any]] = []
    for field in written:
        match data.draw(st.sampled_from(["keep", "promote", "drop", "nullable", "alias"])):
            case "keep":
                fields.append(field)
            case "promote":
                name = data.draw(st.sampled_from(PROMOTED.get(field["type"], [field["type"]])))
                fields.append({**field, "type": name})
            case "nullable":
                fields.append({**field, "type": ["null", field["type"]]})
            case "alias":
                fields.append({**field, "name": f"new_{field['name']}", "aliases": [field["name"]]})
    fields.append({"name": "x", "type": "string", "default": "none"})
    fields.append({"name": "y", "type": ["null", "long"], "default": None})
    fields = data.draw(st.permutations(fields))
    writer = {"type": "record", "name": "r", "fields": written}
    reader = {"type": "record", "name": "r", "fields": fields}
    values = st.fixed_dictionaries({one["name"]: SCALARS[one["type"]] for one in written})
    rows = [oracle(writer, row) for row in data.draw(st.lists(values, max_size=5))]
    found, failures = decoded(writer, rows, reader)
    assert failures.reasons == []
    assert found == [read_by_fastavro(writer, row, reader) for row in rows]


def record(*fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": "r", "fields": list(fields)}


def has(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def enum(*symbols: str, **more: Any) -> dict[str, Any]:
    return {"type": "enum", "name": "e", "symbols": list(symbols), **more}


INNER = {"type": "record", "name": "in", "fields": [has("a", "int"), has("b", "string")]}


@pytest.mark.parametrize(
    ("writer", "value", "reader", "wanted"),
    [
        ("int", -3, "float", -3.0),
        ("long", 2**40, "double", float(2**40)),
        ("int", 7, ["null", "long"], 7),
        (["null", "int"], None, ["null", "long"], None),
        (["int", "null"], 5, "long", 5),
        (["int", "string"], "x", ["string", "int"], {"member0": "x", "member1": None}),
        (["int", "string"], 5, ["string", "int"], {"member0": None, "member1": 5}),
        (["int", "long", "null"], 5, ["int", "long", "null"], 5),
        ("string", "x", ["null", "long", "string"], {"member0": None, "member1": "x"}),
        # The writer's own type before one that it can be promoted to.
        ("int", 5, ["string", "double", "int"], {"member0": None, "member1": None, "member2": 5}),
        (enum("A", "B"), "B", enum("B", "C"), "B"),
        (enum("A", "B"), "A", enum("B", "C", default="C"), "C"),
        (INNER, {"a": 1, "b": "x"}, {**INNER, "fields": [has("b", "bytes")]}, {"b": b"x"}),
        ({"type": "array", "items": "int"}, [1, 2], {"type": "array", "items": "long"}, [1, 2]),
        ({"type": "map", "values": "int"}, {"k": 1}, {"type": "map", "values": ["null", "double"]},
         [("k", 1.0)]),
        # Names of records are ignored.
        (INNER, {"a": 1, "b": "x"}, {**INNER, "name": "other"}, {"a": 1, "b": "x"}),
        (record(), {}, record(has("a", {"type": "array", "items": "int"}, default=[1, 2])),
         {"a": [1, 2]}),
        (record(), {}, record(has("a", INNER, default={"a": 1, "b": "x"})),
         {"a": {"a": 1, "b": "x"}}),
        (logical("long", "timestamp-millis"), datetime.datetime(2020, 1, 1, tzinfo=UTC),
         logical("long", "timestamp-micros"), datetime.datetime(2020, 1, 1, tzinfo=UTC)),
        # The reader requests the plain number.
        (logical("int", "date"), datetime.date(1970, 1, 5), "long", 4),
        (logical("bytes", "decimal", precision=4, scale=2), decimal.Decimal("1.25"),
         logical("bytes", "decimal", precision=9, scale=2), decimal.Decimal("1.25")),
        (logical("string", "uuid"), "2d5ba9c5-57e4-4d92-bd24-9b15d3a3a1ab", "string",
         "2d5ba9c5-57e4-4d92-bd24-9b15d3a3a1ab"),
    ],
)  # fmt: skip
def test_the_readers_schema_determines_the_value(writer, value, reader, wanted):
    found, failures = decoded(writer, [oracle(writer, value)], reader)
    assert (found, failures.reasons) == ([wanted], [])


@pytest.mark.parametrize(
    "kind",
    [
        record(has("x", "int")),
        enum("A", "B"),
        {"type": "fixed", "name": "f", "size": 1},
        logical("fixed", "decimal", size=1, precision=2, scale=0) | {"name": "d"},
    ],
    ids=["record", "enum", "fixed", "decimal"],
)
def test_types_of_one_name_in_two_namespaces_are_told_apart(kind):
    def member(namespace: str) -> dict[str, Any]:
        return {**kind, "namespace": namespace}

    data: list[bytes | None] = [b"\0\2", b"\2\2"]  # of the first branch, and of the second
    in_full = {**kind, "name": f"b.{kind['name']}"}
    written = [member("a"), in_full]
    for reader, places in [
        (written, (0, 1)),
        ([in_full, member("a")], (1, 0)),
        (["string", member("c"), member("b"), member("a")], (3, 2)),
        (["null", member("c"), {**kind, "name": "other"}, member("b")], (0, 2)),  # a: by its name
    ]:
        found, failures = decoded(written, data, reader)
        assert failures.reasons == []
        for row, place in zip(found, places, strict=True):
            assert [name for name, one in row.items() if one is not None] == [f"member{place}"]
    column, _ = decoder(written).decode(pa.array(data))
    assert encode_avro(parse_definition(json.dumps(written)), column).to_pylist() == data


def test_unions_of_very_many_unlike_types_are_refused_at_once():
    def union(first: int) -> list[Any]:
        return [{"type": "fixed", "name": f"f{n}", "size": n} for n in range(first, first + 60)]

    with mock.patch("eos.wire.avro._avro_decoder._MOST_COMPARISONS", 1000):
        assert decoder(union(1)).type.num_fields == 60
        # A union in a union's branch: no other branch is tried then.
        outer = [record(has("u", union(1))), "string"], [record(has("u", union(100))), "string"]
        with pytest.raises(IncompatibleSchema, match="too many unlike types"):
            decoder(*outer)


@pytest.mark.parametrize(
    ("writer", "reader", "named"),
    [
        ("long", "int", "long, which can't be read as int"),
        ("string", "long", "string"),
        (record(has("a", "string")), record(has("a", "int")), "'a' was written as string"),
        (record(), record(has("a", "int")), "'a'.*no default"),
        (["null", "string"], "int", "null or string, which can't be read as int"),
        ("long", logical("long", "timestamp-micros"), "long, which"),
        (logical("long", "local-timestamp-micros"), logical("long", "timestamp-micros"), "local"),
        (logical("bytes", "decimal", precision=4, scale=2),
         logical("bytes", "decimal", precision=4, scale=1), "decimal"),
        ({"type": "fixed", "name": "f", "size": 2}, {"type": "fixed", "name": "f", "size": 3},
         "fixed"),
        ("int", record(has("self", "r")), "contains itself.*'self'"),
        ({"type": "array", "items": "null"}, {"type": "array", "items": "null"}, "no bytes"),
    ],
)  # fmt: skip
def test_incompatible_schemas_are_refused_by_the_fields_name(writer, reader, named):
    with pytest.raises(IncompatibleSchema, match=named):
        decoder(writer, reader)


def test_an_invalid_default_is_refused():
    with pytest.raises(IncompatibleSchema, match="'a'"):
        decoder(record(), record(has("a", "int", default="x")))


def test_a_row_with_a_branch_that_the_reader_lacks_fails_alone():
    rows = [oracle(["null", "int", "string"], one) for one in (1, "x", None, 2)]
    found, failures = decoded(["null", "int", "string"], rows, "int")
    assert found == [1, None, None, 2]
    assert failures.rows.tolist() == [1, 2]
    assert set(failures.reasons) == {"The value has a type that is not in the reader's schema."}


def test_a_recursive_type_of_the_writer_is_skipped_to_a_depth_of_100():
    writer = record(
        has("next", ["null", "r"]), has("many", {"type": "array", "items": "r"}), has("id", "int")
    )
    reader = record(has("id", "int"))

    def chain(depth: int) -> dict[str, Any]:
        inner = None if depth == 0 else chain(depth - 1)
        return {"next": inner, "many": [] if depth else [{"next": None, "many": [], "id": 9}],
                "id": depth}  # fmt: skip

    for few_rows in (0, 48):
        rows = [oracle(writer, chain(depth)) for depth in (0, 3, 20)]
        found, failures = decoded(writer, [*rows, b"\x02" * 5000], reader, few_rows=few_rows)
        assert found == [{"id": 0}, {"id": 3}, {"id": 20}, None]
        assert failures.rows.tolist() == [3]


LONG_LIST = [f"item {number}" for number in range(3000)]


@pytest.mark.parametrize("few_rows", [0, 48])
def test_one_long_list_among_many_short_ones(few_rows):
    definition = {"type": "array", "items": "string"}
    rows = [["x"] * (number % 4) for number in range(100)]
    rows[17] = LONG_LIST
    data = [oracle(definition, row) for row in rows]
    assert decoded(definition, data, few_rows=few_rows)[0] == rows


@pytest.mark.parametrize("few_rows", [0, 48])
def test_lists_may_have_several_blocks_with_or_without_sizes(few_rows):
    one_by_one = b"\x02\x04ab" + b"\x01\x04\x02c" + b"\x00"
    for items in ("string", "bytes"):
        found, failures = decoded(
            {"type": "array", "items": items}, [one_by_one] * 2, few_rows=few_rows
        )
        assert failures.reasons == []
        assert [len(row) for row in found] == [2, 2]
    found, _ = decoded(
        {"type": "array", "items": "boolean"}, [b"\x04\x01\x00\x01\x02\x01\x00"] * 2,
        few_rows=few_rows,
    )  # fmt: skip
    assert found == [[True, False, True]] * 2


@pytest.mark.parametrize("few_rows", [0, 48])
@pytest.mark.parametrize(
    "count", [b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\xff" * 9 + b"\x01", b"\x80" * 11]
)
@pytest.mark.parametrize("items", ["double", "string", INNER])
def test_an_absurd_item_count_is_rejected_without_cost(items, count, few_rows):
    definition = record(has("l", {"type": "array", "items": items}))
    found, failures = decoded(definition, [count, b"\x00", count + b"\x02" * 50], few_rows=few_rows)
    assert found == [None, {"l": []}, None]
    assert failures.rows.tolist() == [0, 2]


@pytest.mark.parametrize("size", [b"\x7e", b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\x01"])
def test_a_row_never_reads_the_bytes_of_the_next_one(size):
    found, failures = decoded("string", [size + b"ab", b"\x04cd", b"\x04e", b"\x04fg"])
    assert found == [None, "cd", None, "fg"]
    assert failures.rows.tolist() == [0, 2]
    assert set(failures.reasons) == {"The value is truncated."}


def test_a_number_does_not_continue_in_the_next_row():
    long = oracle("long", 2**40)
    found, failures = decoded("long", [long[:3], long, long[:-1], b"", long])
    assert found == [None, 2**40, None, None, 2**40]
    assert failures.rows.tolist() == [0, 2, 3]
    assert set(failures.reasons) == {"The value is truncated."}


@pytest.mark.parametrize("size", [None, 3, 16, 20, 32, 33, 60])
def test_decimals_of_all_lengths_are_read_and_too_many_digits_fail(size):
    definition = logical("bytes", "decimal", precision=4, scale=2)
    if size:
        definition |= {"type": "fixed", "name": "f", "size": size}
    width = size or 17

    def written(number: int) -> bytes:
        data = number.to_bytes(width, "big", signed=True)
        return data if size else bytes([width << 1]) + data

    rows = [written(one) for one in (9999, 10_000, -9999, -10_000, 0, -1)]
    rows.append(written(2 ** (8 * width - 1) - 1))
    found, failures = decoded(definition, rows)
    assert [None if one is None else int(one * 100) for one in found] == [
        9999, None, -9999, None, 0, -1, None,
    ]  # fmt: skip
    assert "does not fit in decimal128(4, 2)" in failures.reasons[0]


@pytest.mark.parametrize("at", [0, 1, 15, 16, 17, 32, 43])
def test_every_byte_before_a_decimals_last_16_is_checked(at: int):
    definition = logical("fixed", "decimal", precision=4, scale=2) | {"name": "f", "size": 60}
    good = [(number).to_bytes(60, "big", signed=True) for number in (125, -125)]
    odd = [one[:at] + bytes([one[at] ^ 1]) + one[at + 1 :] for one in good]
    found, failures = decoded(definition, [*good, *odd])
    assert found == [decimal.Decimal("1.25"), decimal.Decimal("-1.25"), None, None]
    assert failures.rows.tolist() == [2, 3]


def test_a_long_decimal_takes_few_times_its_bytes():
    definition = logical("bytes", "decimal", precision=4, scale=2)
    size = 4 << 20
    head = b"\x80\x80\x80\x04"
    made = decoder(definition)
    values = pa.array([head + bytes(size)])
    tracemalloc.start()
    try:
        column, failures = made.decode(values)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (column.to_pylist(), len(failures)) == ([decimal.Decimal("0.00")], 0)
    assert peak < 6 * size


def test_the_field_is_named_and_no_data_is_shown():
    definition = record(has("a", record(has("b", "string")) | {"name": "in"}))
    _, failures = decoded(definition, [b"\x04\xff\xfe", b"\x08ab", b"\x04abc"])
    assert failures.reasons == [
        "The field 'a.b' is not UTF-8 text.",
        "The field 'a.b' is truncated.",
        "The value is longer than its schema says.",
    ]


def test_many_chunks_are_one_column():
    rows = [oracle("string", "x" * (number % 7)) for number in range(100)]
    rows[3] = rows[60] = b"\x04"
    with mock.patch("eos.wire.avro._avro_decoder._CHUNK_BYTES", 64):
        found, failures = decoded("string", rows)
    assert failures.rows.tolist() == [3, 60]
    assert found[61] == "x" * (61 % 7)
    assert decoded("string", [])[0] == []


@pytest.mark.parametrize("leaf", ["int", "string"])
def test_types_in_many_branches_of_the_writer_are_resolved_once(leaf):
    """Otherwise each level would double the work, and any producer can register a schema."""
    writer: Any = leaf
    reader: Any = "long"
    for level in range(40):
        one, other = (record(has("f", writer)) | {"name": f"{name}{level}"} for name in "ab")
        other["fields"][0]["type"] = f"a{level - 1}" if level else leaf
        writer, reader = [one, other], record(has("f", reader)) | {"name": f"r{level}"}
    if leaf == "string":
        with pytest.raises(IncompatibleSchema):
            decoder(writer, reader)
    else:
        assert decoded(writer, [None], reader)[0] == [None]
