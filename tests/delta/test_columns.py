"""Rows that fit a table, and their form in it."""

from __future__ import annotations

import json
from datetime import datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from eos.delta.column_rules import check, check_names, children, fits, relaxed
from eos.delta.rows import conform
from eos.errors import ConfigurationError, InputError
from tests.delta.tables import commit, made, staged

TABLE = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("name", pa.string()),
        pa.field("s", pa.struct([("a", pa.int64()), pa.field("b", pa.string())])),
    ]
)
US = pa.timestamp("us", "UTC")


@pytest.mark.parametrize(
    ("have", "want"),
    [
        (pa.int8(), pa.int64()),
        (pa.int32(), pa.float64()),
        (pa.float32(), pa.float64()),
        (pa.int32(), pa.decimal128(12, 2)),
        (pa.decimal128(5, 2), pa.decimal128(7, 3)),
        (pa.large_string(), pa.string()),
        (pa.dictionary(pa.int32(), pa.string()), pa.string()),
        (pa.timestamp("ms", "Europe/Berlin"), US),
        (pa.null(), pa.struct([("a", pa.int32())])),
        (pa.list_(pa.int32()), pa.list_(pa.int64())),
        (pa.list_(pa.struct([("a", pa.int32())])), pa.list_(pa.struct([("a", pa.int64())]))),
        (pa.map_(pa.string(), pa.int32()), pa.map_(pa.string(), pa.int64())),
        (pa.struct([("B", pa.int8())]), pa.struct([("a", pa.string()), ("b", pa.int32())])),
    ],
    ids=str,
)
def test_lossless_casts_fit(have, want):
    assert fits(have, want)
    table = pa.schema([("c", want)])
    rows = pa.RecordBatch.from_arrays([pa.nulls(2, have)], names=["C"])
    assert conform(rows, table).schema.equals(table)


@pytest.mark.parametrize(
    ("have", "want"),
    [
        (pa.int64(), pa.int32()),
        (pa.int64(), pa.float64()),
        (pa.float64(), pa.float32()),
        (pa.float64(), pa.int64()),
        (pa.int64(), pa.decimal128(20, 2)),
        (pa.decimal128(7, 3), pa.decimal128(7, 2)),
        (pa.decimal128(7, 2), pa.decimal128(7, 3)),
        (pa.string(), pa.int64()),
        (pa.int64(), pa.string()),
        (pa.timestamp("us"), US),
        (US, pa.timestamp("us")),
        (pa.date32(), US),
        (pa.struct([("a", pa.int64())]), pa.struct([("a", pa.int32())])),
        (pa.list_(pa.struct([("a", pa.int64())])), pa.list_(pa.struct([("a", pa.int32())]))),
        (pa.struct([("a", pa.int64())]), pa.int64()),
        (pa.list_(pa.int64()), pa.list_(pa.int32())),
        (pa.map_(pa.string(), pa.int64()), pa.map_(pa.string(), pa.int32())),
    ],
    ids=str,
)
def test_lossy_casts_are_refused_with_both_types(have, want):
    with pytest.raises(InputError, match=r"c[a-z.]* is .*Cast the columns") as caught:
        check(pa.schema([("c", have)]), pa.schema([("c", want)]), may_add=True)
    assert str(leaf(have)) in str(caught.value)
    assert str(leaf(want)) in str(caught.value)
    assert "merge_schema" not in str(caught.value)


def leaf(kind: pa.DataType) -> pa.DataType:
    """The innermost type; for a map, the type of its values."""
    inner = list(children(kind))
    return (
        leaf(inner[-1][1].type)
        if inner and not pa.types.is_struct(kind)
        else (inner[-1][1].type if inner else kind)
    )


def test_columns_that_the_table_lacks_are_refused_or_added_as_nullable():
    have = pa.schema([("id", pa.int64()), pa.field("more", pa.large_string(), nullable=False)])
    with pytest.raises(InputError, match=r"lacks more .*merge_schema"):
        check(have, TABLE, may_add=False)
    merged = check(have, TABLE, may_add=True)
    assert merged.names == ["id", "name", "s", "more"]
    assert merged.field("more") == pa.field("more", pa.string())


def test_a_missing_column_is_null_and_refused_if_it_is_required():
    given = pa.schema([("id", pa.int64())])
    assert check(given, TABLE, may_add=False) == TABLE
    rows = conform(pa.RecordBatch.from_pylist([{"id": 1}], schema=given), TABLE)
    assert rows.to_pylist() == [{"id": 1, "name": None, "s": None}]
    with pytest.raises(InputError, match="id takes no nulls, and is missing"):
        check(pa.schema([("name", pa.string())]), TABLE, may_add=False)


def test_two_columns_that_differ_in_case_only_are_refused():
    with pytest.raises(InputError, match="name is there twice"):
        check(pa.schema([("Name", pa.string()), ("name", pa.string())]), TABLE, may_add=True)


def test_names_are_compared_without_case_and_rows_take_the_tables_order():
    given = pa.schema([("NAME", pa.string()), ("Id", pa.int16())])
    rows = pa.RecordBatch.from_pylist([{"NAME": "x", "Id": 5}], schema=given)
    assert conform(rows, TABLE).to_pylist() == [{"id": 5, "name": "x", "s": None}]


def test_fields_of_structs_are_found_by_name_and_a_null_struct_stays_null():
    given = pa.schema([("id", pa.int64()), ("s", pa.struct([("B", pa.string())]))])
    rows = pa.RecordBatch.from_pylist(
        [{"id": 1, "s": {"B": "x"}}, {"id": 2, "s": None}], schema=given
    )
    assert [row["s"] for row in conform(rows, TABLE).to_pylist()] == [{"a": None, "b": "x"}, None]


def test_a_null_in_a_required_column_is_refused_by_name():
    with pytest.raises(InputError, match="'id' takes no nulls"):
        conform(pa.RecordBatch.from_pylist([{"id": None}], schema=TABLE.remove(2)), TABLE)
    inner = pa.schema([("s", pa.struct([pa.field("a", pa.int32(), nullable=False)]))])
    given = pa.schema([("s", pa.struct([pa.field("a", pa.int32())]))])
    whole = conform(pa.RecordBatch.from_pylist([{"s": None}, {"s": {"a": 1}}], given), inner)
    assert whole.to_pylist() == [{"s": None}, {"s": {"a": 1}}]
    with pytest.raises(InputError, match=r"'s\.a' takes no nulls"):
        conform(pa.RecordBatch.from_pylist([{"s": {"a": None}}], given), inner)


def test_values_keep_their_meaning_in_a_cast():
    table = pa.schema([("d", pa.decimal128(22, 2)), ("f", pa.float64())])
    given = pa.schema([("d", pa.int64()), ("f", pa.int32())])
    rows = pa.RecordBatch.from_pylist([{"d": 2**63 - 1, "f": -(2**31)}], schema=given)
    assert conform(rows, table).to_pylist() == [{"d": Decimal(2**63 - 1), "f": -(2.0**31)}]


def required(name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, nullable=False)


INNER = pa.struct([required("n", pa.int64()), pa.field("t", pa.string())])
STRICT = pa.schema(
    [
        ("s", pa.struct([required("n", pa.int64()), required("u", INNER)])),
        ("l", pa.list_(required("element", INNER))),
        ("m", pa.map_(pa.string(), required("value", INNER))),
        ("k", pa.map_(INNER, pa.int32())),
        ("ll", pa.list_(pa.list_(required("element", pa.int64())))),
    ]
)
GOOD = [
    {"s": {"n": 1, "u": {"n": 2, "t": None}}, "l": [{"n": 3, "t": "x"}], "m": [("a", {"n": 4})]},
    {"s": None, "l": None, "m": None, "k": None, "ll": None},
    {
        "s": {"n": 5, "u": {"n": 6}},
        "l": [],
        "m": [],
        "k": [({"n": 7}, None)],
        "ll": [None, [], [8]],
    },
]


@pytest.mark.parametrize(
    ("row", "path"),
    [
        ({"s": {"n": None, "u": {"n": 1}}}, "s.n"),
        ({"s": {"n": 1, "u": None}}, "s.u"),
        ({"s": {"n": 1, "u": {"n": None}}}, "s.u.n"),
        ({"l": [{"n": 1}, None]}, "l.element"),
        ({"l": [{"n": None}]}, "l.element.n"),
        ({"m": [("a", None)]}, "m.value"),
        ({"m": [("a", {"n": None})]}, "m.value.n"),
        ({"k": [({"n": None}, 1)]}, "k.key.n"),
        ({"ll": [[1], [2, None]]}, "ll.element.element"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
@pytest.mark.parametrize("cut", [0, 1, 3])
def test_a_null_in_a_required_field_is_refused_with_its_whole_path(row, path, cut):
    """Also next to nulls of the surrounding type, and in a slice of a longer batch."""
    rows = pa.RecordBatch.from_pylist([*GOOD, row], schema=relaxed(STRICT))
    with pytest.raises(InputError, match=rf"'{path}' takes no nulls, and has 1 .*DROP NOT NULL"):
        conform(rows.slice(cut), STRICT)
    good = conform(rows.slice(0, len(GOOD)), STRICT)
    assert good.to_pylist() == rows.slice(0, len(GOOD)).to_pylist()
    assert conform(rows.slice(1, 2), STRICT).to_pylist() == rows.slice(1, 2).to_pylist()


def test_a_null_struct_with_required_fields_is_written_and_read_as_null(tmp_path):
    """Batches like Spark's: it calls the fields required, and has nulls below null structs."""
    rows = pa.RecordBatch.from_pylist(GOOD, schema=STRICT)
    for name, columns in (("strict", STRICT), ("relaxed", relaxed(STRICT))):
        table = made(tmp_path / name, columns)
        files, schema = staged(table, rows)
        commit(table, files, 1, schema)
        found = DeltaTable(table.folder.uri).to_pyarrow_table().to_pylist()
        assert found == rows.to_pylist()


def test_fields_that_structs_lack_are_added_at_every_level_on_request():
    have = pa.schema(
        [
            ("L", pa.list_(pa.struct([required("N", pa.int32()), required("more", INNER)]))),
            ("m", pa.map_(pa.string(), pa.struct([("n", pa.int64()), ("x y", pa.int64())]))),
        ]
    )
    table = pa.schema([("l", STRICT.field("l").type), ("m", STRICT.field("m").type)])
    with pytest.raises(InputError) as caught:
        check(have, table, may_add=False)
    assert "lacks L.element.more (struct<n: int64, t: string>), m.value.x y (int64)" in str(
        caught.value
    ).replace("l.element", "L.element")
    assert "merge_schema=True" in str(caught.value)
    assert "Cast" not in str(caught.value)
    with pytest.raises(InputError, match=r"'m\.value\.x y' has a name .*Spark.*Rename"):
        check(have, table, may_add=True)
    merged = check(have.remove(1), table, may_add=True)
    assert merged.field("m") == table.field("m")
    item = merged.field("l").type.value_field
    assert not item.nullable
    assert [field.name for field in item.type] == ["n", "t", "more"]
    assert not item.type.field("n").nullable
    assert item.type.field("more").type == relaxed(pa.schema([("i", INNER)])).field(0).type
    rows = pa.RecordBatch.from_pylist(
        [{"L": [{"N": 1, "more": {"n": 2, "t": None}}]}, {"L": None}], schema=have.remove(1)
    )
    assert conform(rows, merged).to_pylist() == [
        {"l": [{"n": 1, "t": None, "more": {"n": 2, "t": None}}], "m": None},
        {"l": None, "m": None},
    ]


@pytest.mark.parametrize("char", " ,;{}()\n\t=")
def test_a_name_that_sparks_delta_writer_refuses_is_refused(char):
    for column in (
        pa.field(f"a{char}b", pa.int32()),
        pa.field("s", pa.list_(pa.struct([(f"a{char}b", pa.int32())]))),
    ):
        with pytest.raises(InputError, match=r"has a name that Spark's Delta writer refuses"):
            check_names(pa.schema([column]))
        with pytest.raises(InputError, match=r"has a name that Spark's Delta writer refuses"):
            check(pa.schema([column]), pa.schema([("id", pa.int64())]), may_add=True)
    there = pa.schema([(f"a{char}b", pa.int32())])
    assert check(there, there, may_add=True) == there


def test_a_name_that_deltalake_would_cut_off_is_refused_before_a_table_is_created(tmp_path):
    column = pa.field("s", pa.list_(pa.struct([("a\0b", pa.int32())])))
    for one in (pa.field("a\0b", pa.int32()), column):
        with pytest.raises(InputError, match="has a zero character in its name"):
            made(tmp_path / "t", relaxed(pa.schema([one])))
        with pytest.raises(InputError, match="has a zero character in its name"):
            check(pa.schema([one]), pa.schema([("id", pa.int64())]), may_add=True)
    assert not (tmp_path / "t").exists()


def test_local_times_inside_maps_are_merged_and_never_make_an_unreadable_table(tmp_path):
    times = pa.map_(pa.string(), pa.list_(pa.timestamp("us")))
    rows = pa.RecordBatch.from_pydict(
        {"id": [1], "m": pa.array([[("a", [datetime(2026, 11, 26)])]], times)}
    )
    with pytest.raises(ConfigurationError, match=r"without time zone inside a map, m\.value\."):
        made(tmp_path / "t", rows.schema)
    assert not (tmp_path / "t").exists()
    table = made(tmp_path / "t", pa.schema([("id", pa.int64())]))
    files, schema = staged(table, rows, merge=True)
    commit(table, files, 1, schema, merge=True)
    assert DeltaTable(table.folder.uri).to_pyarrow_table().to_pylist() == rows.to_pylist()


def declared(as_what: str) -> pa.Schema:
    """A table with a column that Spark has declared as CHAR or VARCHAR."""
    metadata = {"__CHAR_VARCHAR_TYPE_STRING": as_what}
    return pa.schema([("id", pa.int64()), pa.field("c", pa.string(), metadata=metadata)])


@pytest.mark.parametrize("as_what", ["varchar(3)", "char(3)"])
def test_declared_lengths_are_kept_as_spark_keeps_them(tmp_path, as_what):
    table = made(tmp_path / "t", declared(as_what))
    table.check_writable()
    texts = ["", "ab", "ab    ", "abc", "\U0001f600é  ", None]
    stored = ["", "ab", "ab ", "abc", "\U0001f600é ", None]
    rows = pa.RecordBatch.from_pydict({"id": pa.array(range(6)), "c": texts})
    files, schema = staged(table, rows)
    commit(table, files, 1, schema)
    assert DeltaTable(table.folder.uri).to_pyarrow_table()["c"].to_pylist() == stored
    with pytest.raises(InputError, match=rf"'c' is {as_what[:-3]}\(3\), and has text of 4"):
        staged(table, pa.RecordBatch.from_pydict({"c": ["ab", "abcd"]}))


def test_declared_lengths_inside_lists_are_refused(tmp_path):
    metadata = {"__CHAR_VARCHAR_TYPE_STRING": "array<char(2)>"}
    column = pa.field("c", pa.list_(pa.string()), metadata=metadata)
    table = made(tmp_path / "t", pa.schema([("id", pa.int64()), column]))
    with pytest.raises(ConfigurationError, match=r"column c declared as array<char\(2\)>"):
        table.check_writable()


def test_two_fields_that_differ_in_case_only_are_refused_by_their_path():
    twice = pa.list_(pa.struct([("a", pa.int32()), ("A", pa.int32())]))
    with pytest.raises(InputError, match=r"c\.element\.a is there twice"):
        check_names(pa.schema([("c", twice)]))


RULES = {"delta.invariants": "{}", "__CHAR_VARCHAR_TYPE_STRING": "array<char(2)>"}
SHORT = {"__CHAR_VARCHAR_TYPE_STRING": "varchar(3)"}


def described(name: str, kind: pa.DataType, **metadata: object) -> pa.Field:
    """A column with metadata, as PySpark passes it to Arrow."""
    return pa.field(name, kind, metadata={"SPARK::metadata::json": json.dumps(metadata)})


def test_metadata_of_columns_is_stored_as_by_sparks_writer(tmp_path):
    """Mainly comments; but no rules, which other writers would have to follow from then on."""
    inner = described("b", pa.int32(), comment="inside", pulsar="field")
    first = described("a", pa.int32(), comment="c", n=1, CURRENT_DEFAULT="5", **RULES)
    text = described("c", pa.string(), **SHORT)
    table = made(tmp_path / "t", relaxed(pa.schema([first, ("s", pa.struct([inner])), text])))
    more = described("more", pa.list_(pa.struct([inner])), comment="added")
    rows = pa.RecordBatch.from_pylist([{"a": 1}], pa.schema([("a", pa.int32()), more]))
    files, schema = staged(table, rows, merge=True)
    commit(table, files, 1, schema, merge=True)
    found = {one.name: one for one in DeltaTable(table.folder.uri).schema().fields}
    assert found["a"].metadata == {"comment": "c", "n": 1}
    assert found["c"].metadata == SHORT
    assert found["s"].type.fields[0].metadata == {"comment": "inside", "pulsar": "field"}
    assert found["more"].metadata == {"comment": "added"}
    items = found["more"].type.element_type
    assert items.fields[0].metadata == {"comment": "inside", "pulsar": "field"}
    table.check_writable()
