"""Encoded columns have exactly the bytes that ``fastavro`` writes for the same rows."""

from __future__ import annotations

import decimal
import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from eos.errors import ConfigurationError, InputError
from eos.wire.avro import arrow_type, check_fits, encode_avro, parse_definition
from tests.wire.avro.kinds import NAMES, TEXT, columns, logical, oracle


def encoded(definition: Any, column: pa.Array) -> list[bytes | None]:
    kind = parse_definition(json.dumps(definition))
    check_fits(kind, column.type)
    return encode_avro(kind, column).to_pylist()


@given(columns())
def test_rows_are_what_fastavro_writes(drawn):
    definition, column, rows = drawn
    wanted = [None if row is None else oracle(definition, row) for row in rows]
    assert encoded(definition, column) == wanted


@given(columns(), st.integers(0, 5), st.integers(0, 5))
def test_a_slice_of_a_column_is_encoded_like_its_rows(drawn, skip, count):
    definition, column, rows = drawn
    wanted = [None if row is None else oracle(definition, row) for row in rows]
    assert encoded(definition, column.slice(skip, count)) == wanted[skip : skip + count]


def unscaled(bits: int) -> list[int]:
    return [sign * (2**bits + step) for sign in (1, -1) for step in (-1, 0, 1)]


@pytest.mark.parametrize("fixed", [False, True])
def test_decimals_at_byte_boundaries_have_the_length_of_fastavro(fixed):
    numbers = [0, *(one for bits in range(1, 126) for one in unscaled(bits))]
    numbers = [one for one in numbers if abs(one) < 10**38]
    definition: dict[str, Any] = {
        "type": "bytes",
        "logicalType": "decimal",
        "precision": 38,
        "scale": 2,
    }
    if fixed:
        definition |= {"type": "fixed", "name": "money", "size": 16}
    context = decimal.Context(prec=76)
    rows = [decimal.Decimal(one).scaleb(-2, context) for one in numbers]
    column = pa.array(rows, pa.decimal128(38, 2))
    assert encoded(definition, column) == [oracle(definition, row) for row in rows]


def test_hidden_items_of_null_maps_and_lists_are_not_written():
    items, ends = pa.array([1, 2, 3, 4], pa.int64()), pa.array([0, 2, 4], pa.int32())
    hidden = pa.ListArray.from_arrays(ends, items, mask=pa.array([True, False]))
    assert encoded({"type": "array", "items": "long"}, hidden) == [None, b"\x04\x06\x08\x00"]
    keys = pa.array(["a", "b", "c", "d"])
    hidden = pa.MapArray.from_arrays(ends, keys, items, mask=pa.array([True, False]))
    wanted = oracle({"type": "map", "values": "long"}, {"c": 3, "d": 4})
    assert encoded({"type": "map", "values": "long"}, hidden) == [None, wanted]


def test_a_field_without_a_column_gets_its_default():
    definition = {
        "type": "record",
        "name": "row",
        "fields": [
            {"name": "a", "type": "long"},
            {"name": "b", "type": ["null", "string"], "default": None},
            {"name": "c", "type": ["string", "null"], "default": "x"},
            {"name": "d", "type": {"type": "array", "items": "int"}, "default": [1, -2]},
            {"name": "e", "type": {"type": "map", "values": "double"}, "default": {"k": 0.5}},
            {
                "name": "f",
                "type": {"type": "enum", "name": "E", "symbols": ["A", "B"]},
                "default": "B",
            },
            {"name": "g", "type": "bytes", "default": "\u00ff"},
            {"name": "h", "type": {"type": "fixed", "name": "F", "size": 2}, "default": "\0\1"},
            {"name": "i", "type": "boolean", "default": True},
            {"name": "j", "type": "float", "default": 1.5},
            {"name": "k", "type": "long", "default": -(2**40)},
            {
                "name": "l",
                "type": {"type": "record", "name": "In", "fields": [{"name": "x", "type": "int"}]},
                "default": {"x": 7},
            },
        ],
    }
    rows = [{"a": 1}, {"a": -300}]
    column = pa.array(rows, pa.struct([("a", pa.int64())]))
    defaults = {
        field["name"]: field["default"] for field in definition["fields"] if "default" in field
    }
    defaults |= {"g": b"\xff", "h": b"\0\1"}  # fastavro requires bytes for these
    wanted = [oracle(definition, defaults | row) for row in rows]
    assert encoded(definition, column) == wanted


@pytest.mark.parametrize(
    ("kind", "default"),
    [("string", "PQ"), ("double", 0.1), ("long", 2**40), (["string", "null"], "qq"), ("int", -700)],
)
@pytest.mark.parametrize("place", [0, 1])
def test_a_default_of_several_bytes_is_complete_in_each_row(kind, default, place):
    fields = [{"name": "id", "type": "long"}]
    fields.insert(place, {"name": "p", "type": kind, "default": default})
    definition = {"type": "record", "name": "row", "fields": fields}
    column = pa.array([{"id": number} for number in range(5)], pa.struct([("id", pa.int64())]))
    wanted = [oracle(definition, {"id": number, "p": default}) for number in range(5)]
    assert encoded(definition, column) == wanted


@given(st.data(), st.integers(1, 6))
def test_missing_columns_get_their_defaults_in_every_row(data, count):
    scalars = st.sampled_from(
        [("string", TEXT), ("long", st.integers(-(2**63), 2**63 - 1)), ("boolean", st.booleans())]
    )
    drawn = data.draw(st.lists(scalars.flatmap(lambda one: st.tuples(st.just(one[0]), one[1]))))
    definition = {
        "type": "record",
        "name": f"n{next(NAMES)}",
        "fields": [
            {"name": f"f{number}", "type": kind, "default": default}
            for number, (kind, default) in enumerate(drawn)
        ],
    }
    defaults = {f"f{number}": default for number, (_, default) in enumerate(drawn)}
    column = pa.array([{} for _ in range(count)], pa.struct([]))
    assert encoded(definition, column) == [oracle(definition, defaults)] * count


@pytest.mark.parametrize(
    ("union", "column", "wanted"),
    [
        (["bytes", "string"], pa.array(["ab"]), b"\x02\x04ab"),
        (
            [{"type": "enum", "name": "E", "symbols": ["A"]}, "string"],
            pa.array(["Q"]),
            b"\x02\x02Q",
        ),
        (["double", "long"], pa.array([3], pa.int64()), b"\x02\x06"),
        (["double", "null", "int"], pa.array([3], pa.int32()), b"\x04\x06"),
        (["null", "double"], pa.array([1], pa.int8()), b"\x02" + b"\0\0\0\0\0\0\xf0\x3f"),
    ],
)
def test_the_branch_of_the_columns_own_type_is_chosen_from_a_union(union, column, wanted):
    assert encoded(union, column) == [wanted]


MEMBERS = pa.struct([("member0", pa.int32()), ("member1", pa.string())])


@pytest.mark.parametrize(
    ("union", "rows", "why"),
    [
        (["int", "string"], [{"member0": 1, "member1": "a"}], "several members"),
        (["int", "string"], [{"member0": None, "member1": None}], "no member"),
        (["int", "string"], [None, {"member0": 1}], "no member"),
    ],
)
def test_a_row_without_exactly_one_member_of_a_union_is_refused(union, rows, why):
    definition = {"type": "record", "name": "r", "fields": [{"name": "u", "type": union}]}
    column = pa.array([{"u": row} for row in rows], pa.struct([("u", MEMBERS)]))
    with pytest.raises(InputError, match=f"Field 'u' has {why}"):
        encoded(definition, column)


def test_a_null_of_a_union_is_a_struct_that_is_null_or_has_no_member():
    union = ["int", "null", "string"]
    definition = {"type": "record", "name": "r", "fields": [{"name": "u", "type": union}]}
    rows = [None, {"member0": None, "member1": None}, {"member0": 3}, {"member1": "a"}]
    column = pa.array([{"u": row} for row in rows], pa.struct([("u", MEMBERS)]))
    assert encoded(definition, column) == [b"\x02", b"\x02", b"\0\6", b"\4\2a"]


@pytest.mark.parametrize("as_json", [False, True])
def test_two_fields_of_one_name_are_refused_at_every_level(as_json):
    inner = {"type": "record", "name": "s", "fields": [{"name": "a", "type": "int"}]}
    kind = {"type": "record", "name": "r", "fields": [{"name": "s", "type": inner}]}
    twice = pa.struct([("a", pa.int32()), ("a", pa.int32())])
    for column, named in ((pa.struct([("s", twice)]), "s.a"), (twice, "a")):
        with pytest.raises(InputError, match=f"Two columns are called '{named}'"):
            check_fits(parse_definition(json.dumps(kind)), column, as_json=as_json)


def test_members_of_another_type_are_refused_and_json_has_none():
    kind = parse_definition('["int", "boolean"]')
    with pytest.raises(InputError, match="member1"):
        check_fits(kind, MEMBERS)
    kind = parse_definition('["int", "string"]')
    check_fits(kind, MEMBERS)
    with pytest.raises(InputError):
        check_fits(kind, MEMBERS, as_json=True)


MANY = [{"type": "fixed", "name": f"f{size}", "size": size} for size in range(1, 70)]
LAST = b"x" * 69  # of the last one of these types


@pytest.mark.parametrize(
    ("union", "values", "column"),
    [
        ([*MANY, "string"], ["a", "b"], None),
        ([*MANY, "string", "null"], ["a", "b"], None),
        ([*MANY, "string", "null"], ["a", None], None),
        ([*MANY, "null"], [b"x", LAST, None], [{"member0": b"x"}, {"member68": LAST}, None]),
    ],
    ids=["one", "of a nullable", "null", "members"],
)
def test_branches_beyond_the_64th_have_two_bytes_and_nulls_around_them_none(union, values, column):
    # The union is in records in lists and records; each of these is null in some rows.
    record = {"type": "record", "name": "q", "fields": [{"name": "u", "type": union}]}
    inner = [
        {"name": "one", "type": ["null", record]},
        {"name": "many", "type": ["null", {"type": "array", "items": ["null", "q"]}]},
    ]
    outer = {"type": "record", "name": "p", "fields": inner}
    fields = [{"name": "p", "type": ["null", outer]}, {"name": "z", "type": "int"}]
    definition = {"type": "record", "name": "r", "fields": fields}

    def rows(found: list[Any]) -> list[Any]:
        some = [None, *({"u": one} for one in found)]
        pairs = [{"one": one, "many": many} for one in some for many in (None, [], some)]
        return [{"p": p, "z": z} for z, p in enumerate([*pairs, None, *pairs])]

    kind = pa.string() if column is None else arrow_type(parse_definition(json.dumps(union)))
    record_of = pa.struct([("u", kind)])
    p = pa.struct([("one", record_of), ("many", pa.list_(record_of))])
    found = pa.array(rows(column or values), pa.struct([("p", p), ("z", pa.int32())]))
    assert encoded(definition, found) == [oracle(definition, row) for row in rows(values)]


def test_a_null_struct_in_a_map_may_have_non_nullable_fields():
    inner = pa.struct([pa.field("x", pa.binary(), nullable=False)])
    column = pa.array([[("k", None)], [("k", {"x": b"ab"})], None], pa.map_(pa.string(), inner))
    record = {"type": "record", "name": "In", "fields": [{"name": "x", "type": "bytes"}]}
    definition = {"type": "map", "values": ["null", record]}
    assert encoded(definition, column) == [
        oracle(definition, {"k": None}), oracle(definition, {"k": {"x": b"ab"}}), None,
    ]  # fmt: skip


def test_milliseconds_are_rounded_down():
    column = pa.array([-1, 0, 1999], pa.timestamp("us", "UTC"))
    kind = parse_definition(json.dumps(logical("long", "timestamp-millis")))
    assert encode_avro(kind, column).to_pylist() == [b"\x01", b"\x00", b"\x02"]


def test_a_recursive_type_is_written_to_the_depth_of_the_columns():
    definition = {
        "type": "record",
        "name": "Node",
        "fields": [
            {"name": "id", "type": "int"},
            {"name": "next", "type": ["null", "Node"], "default": None},
        ],
    }
    inner = pa.struct([("id", pa.int32())])
    rows = [{"id": 1, "next": {"id": 2}}, {"id": 3, "next": None}]
    column = pa.array(rows, pa.struct([("id", pa.int32()), ("next", inner)]))
    assert encoded(definition, column) == [oracle(definition, row) for row in rows]


def test_large_columns_are_encoded_in_chunks(monkeypatch):
    monkeypatch.setattr("eos.wire.avro._avro_encoder._CHUNK_BYTES", 100)
    rows = [f"{number:030d}" for number in range(50)]
    assert encoded("string", pa.array(rows)) == [oracle("string", row) for row in rows]


def test_a_null_that_is_not_allowed_is_an_error_that_names_the_field():
    definition = {
        "type": "record",
        "name": "row",
        "fields": [{"name": "a", "type": {"type": "array", "items": "long"}}],
    }
    column = pa.array([{"a": [1, None]}], pa.struct([("a", pa.list_(pa.int64()))]))
    with pytest.raises(InputError, match=r"'a\[\]' is null"):
        encoded(definition, column)


@pytest.mark.parametrize(
    ("definition", "column", "text"),
    [
        (
            {"type": "enum", "name": "E", "symbols": ["A", "B"]},
            pa.array(["A", "C"]),
            "other than A, B",
        ),
        ({"type": "fixed", "name": "F", "size": 2}, pa.array([b"ab", b"c"]), "not 2 bytes"),
        (
            {
                "type": "fixed",
                "name": "F",
                "size": 1,
                "logicalType": "decimal",
                "precision": 4,
                "scale": 0,
            },
            pa.array([decimal.Decimal(127), decimal.Decimal(128)], pa.decimal128(4, 0)),
            "not fit in 1 bytes",
        ),
    ],
)
def test_a_value_outside_of_the_types_range_is_an_error(definition, column, text):
    with pytest.raises(InputError, match=text):
        encoded(definition, column)


RECORD = {
    "type": "record",
    "name": "row",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "at", "type": ["null", logical("long", "timestamp-micros")], "default": None},
    ],
}


@pytest.mark.parametrize(
    ("column", "text"),
    [
        (pa.struct([("id", pa.int64())]), "Column 'id' is bigint; the schema requires int"),
        (pa.struct([("id", pa.int32()), ("x", pa.int32())]), "no field 'x'"),
        (pa.struct([("at", pa.timestamp("us", "UTC"))]), "field 'id' has neither a column"),
        (pa.struct([("id", pa.int32()), ("at", pa.timestamp("us"))]), "'at' is timestamp"),
        (pa.struct([("id", pa.int32()), ("at", pa.string())]), "'at' is string"),
        (pa.int32(), "The value is int; the schema requires record row"),
    ],
)
def test_columns_that_do_not_fit_are_named(column, text):
    with pytest.raises(InputError, match=text):
        check_fits(parse_definition(json.dumps(RECORD)), column)


@pytest.mark.parametrize(
    ("definition", "text"),
    [
        ("{", "not JSON"),
        ('{"type": "record", "name": "r"}', "without fields"),
        ('{"type": "record", "fields": []}', "without a name"),
        ('{"type": "record", "name": "r", "fields": [{"name": "a"}]}', "without name or type"),
        ('{"type": "record", "name": "r", "fields": [{"name": "a", "type": "x"}]}', "at a"),
        ('["null", ["int"]]', "contains a union"),
        ('{"type": "nothing"}', "not defined"),
        ("5", "not a type"),
        ("[" * 100_000, "."),
        ('{"type": "array", "items": ' * 5000 + '"int"' + "}" * 5000, "."),
    ],
)
def test_a_definition_that_is_not_avro_is_refused(definition, text):
    with pytest.raises(ConfigurationError, match=text):
        parse_definition(definition)


@example([])
@given(st.lists(st.integers(0, 3)))
def test_empty_records_take_no_bytes(sizes):
    column = pa.array([{} for _ in sizes], pa.struct([]))
    assert encoded({"type": "record", "name": "r", "fields": []}, column) == [b""] * len(sizes)


def test_numbers_are_not_written_as_dates_or_timestamps_but_with_other_logical_types():
    column = pa.array(np.arange(3, dtype=np.int64))
    for name in ("of-our-own", "timestamp-nanos"):  # which are read as numbers
        assert encoded(logical("long", name), column) == [b"\0", b"\2", b"\4"]
    for name in ("timestamp-millis", "local-timestamp-micros"):
        with pytest.raises(InputError, match=f"the schema requires {name}"):
            encoded(logical("long", name), column)
    with pytest.raises(InputError, match="the schema requires date"):
        encoded(logical("int", "date"), column.cast(pa.int32()))
