"""Which rows fit a table, and what they look like in it."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

from eos.delta._columns import check, conform, fits
from eos.errors import InputError

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
def test_what_loses_nothing_fits_and_is_cast(have, want):
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
        (pa.struct([("x", pa.int32())]), pa.struct([("a", pa.int32())])),
        (pa.list_(pa.struct([("b", pa.int32())])), pa.list_(pa.struct([("a", pa.int32())]))),
        (pa.list_(pa.int64()), pa.list_(pa.int32())),
        (pa.map_(pa.string(), pa.int64()), pa.map_(pa.string(), pa.int32())),
    ],
    ids=str,
)
def test_what_might_lose_something_is_refused_with_both_types(have, want):
    with pytest.raises(InputError, match="c is ") as caught:
        check(pa.schema([("c", have)]), pa.schema([("c", want)]), may_add=True)
    assert str(have) in str(caught.value)
    assert str(want) in str(caught.value)


def test_columns_that_the_table_lacks_are_refused_or_added_as_nullable():
    have = pa.schema([("id", pa.int64()), pa.field("more", pa.large_string(), nullable=False)])
    with pytest.raises(InputError, match=r"lacks more .*merge_schema"):
        check(have, TABLE, may_add=False)
    merged = check(have, TABLE, may_add=True)
    assert merged.names == ["id", "name", "s", "more"]
    assert merged.field("more") == pa.field("more", pa.string())


def test_a_missing_column_is_null_and_refused_where_there_may_be_none():
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


def test_a_null_where_the_table_takes_none_is_refused_by_name():
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
