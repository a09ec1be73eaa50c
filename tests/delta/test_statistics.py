"""Statistics: a bound may be too wide, never too narrow."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eos.delta._statistics import INDEXED_COLUMNS, FileStatistics

KINDS = {
    "long": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "byte": (pa.int8(), st.integers(-128, 127)),
    "double": (pa.float64(), st.floats(allow_nan=False, allow_infinity=False)),
    "float": (pa.float32(), st.floats(width=32, allow_nan=False, allow_infinity=False)),
    "text": (pa.string(), st.text(max_size=80)),
    "day": (pa.date32(), st.dates()),
    "moment": (
        pa.timestamp("us", "UTC"),
        st.datetimes(max_value=datetime(9999, 12, 31)).map(lambda found: found.replace(tzinfo=UTC)),
    ),
    "local": (pa.timestamp("us"), st.datetimes(max_value=datetime(9999, 12, 31))),
    "money": (
        pa.decimal128(15, 4),
        st.integers(-(10**15) + 1, 10**15 - 1).map(lambda units: Decimal(units).scaleb(-4)),
    ),
}


def statistics(kind: pa.DataType, *batches: list) -> dict:
    schema = pa.schema([("c", kind)])
    found = FileStatistics(schema)
    for values in batches:
        found.add(pa.RecordBatch.from_arrays([pa.array(values, kind)], schema=schema))
    return json.loads(found.to_json())


def back(kind: pa.DataType, bound):
    """A bound as a reader interprets it."""
    if pa.types.is_timestamp(kind):
        return datetime.fromisoformat(bound)
    if pa.types.is_date(kind):
        return date.fromisoformat(bound)
    return Decimal(str(bound)) if pa.types.is_decimal(kind) else bound


@pytest.mark.parametrize("name", KINDS)
@given(data=st.data())
def test_every_value_is_within_the_bounds_and_short_values_are_exact(name, data):
    kind, values = KINDS[name]
    batches = data.draw(st.lists(st.lists(st.none() | values), max_size=3))
    found = statistics(kind, *batches)
    array = pa.array([value for batch in batches for value in batch], kind)
    assert found["numRecords"] == len(array)
    assert found["nullCount"] == {"c": array.null_count}
    if array.null_count == len(array):
        assert (found["minValues"], found["maxValues"]) == ({}, {})
        return
    low, high = back(kind, found["minValues"]["c"]), back(kind, found["maxValues"]["c"])
    expected = pc.min_max(array)
    assert low <= expected["min"].as_py()
    assert high >= expected["max"].as_py()
    if name not in ("text", "moment", "local"):
        assert (low, high) == (expected["min"].as_py(), expected["max"].as_py())


@pytest.mark.parametrize("strange", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_a_column_with_a_number_that_readers_order_differently_has_no_bounds(strange, kind):
    for batches in ([[1.0, strange]], [[1.0], [strange]], [[strange], [1.0]]):
        found = statistics(kind, *batches)
        assert (found["minValues"], found["maxValues"]) == ({}, {})


def test_the_bounds_of_zero_include_both_zeros():
    for zero in (0.0, -0.0):
        found = statistics(pa.float64(), [zero])
        assert math.copysign(1, found["minValues"]["c"]) == -1
        assert math.copysign(1, found["maxValues"]["c"]) == 1


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.decimal128(16, 0), Decimal(1)),
        (pa.decimal128(38, 10), Decimal(1)),
        (pa.bool_(), True),
        (pa.binary(), b"x"),
        (pa.list_(pa.int32()), [1]),
        (pa.map_(pa.string(), pa.int32()), [("a", 1)]),
        (pa.string(), "x" * 32 + "\U0010ffff"),
        (pa.timestamp("us"), datetime(9999, 12, 31, 23, 59, 59, 999999)),
    ],
)
def test_types_without_common_bounds_have_their_nulls_counted(kind, value):
    found = statistics(kind, [value, None])
    expected = {"numRecords": 2, "minValues": {}, "maxValues": {}, "nullCount": {"c": 1}}
    assert found == expected


def test_text_that_is_not_utf8_has_no_bounds():
    array = pa.array([b"\xff"]).view(pa.string())
    found = FileStatistics(pa.schema([("c", pa.string())]))
    found.add(pa.RecordBatch.from_arrays([array], names=["c"]))
    assert json.loads(found.to_json())["minValues"] == {}


def test_long_text_is_cut_and_its_upper_bound_is_raised():
    found = statistics(pa.string(), ["a" * 40, "b" * 40])
    assert found["minValues"]["c"] == "a" * 32
    assert found["maxValues"]["c"] == "b" * 32 + "\U0010ffff"


def test_timestamps_are_rounded_outwards_to_milliseconds():
    value = datetime(2020, 1, 2, 3, 4, 5, 123456, UTC)
    found = statistics(pa.timestamp("us", "UTC"), [value])
    assert found["minValues"]["c"] == "2020-01-02T03:04:05.123Z"
    assert found["maxValues"]["c"] == "2020-01-02T03:04:05.124Z"
    local = statistics(pa.timestamp("us"), [datetime(1969, 12, 31, 23, 59, 59, 999999)])
    assert local["minValues"]["c"] == "1969-12-31T23:59:59.999"
    assert local["maxValues"]["c"] == "1970-01-01T00:00:00.000"


def test_fields_of_structs_count_one_by_one_and_are_null_with_their_struct():
    inner = pa.struct([("x", pa.int32()), ("y", pa.struct([("z", pa.string())]))])
    found = statistics(inner, [{"x": 1, "y": {"z": "a"}}, None, {"x": None, "y": None}])
    assert found["nullCount"] == {"c": {"x": 2, "y": {"z": 2}}}
    assert found["minValues"] == {"c": {"x": 1, "y": {"z": "a"}}}
    wide = pa.struct([(f"f{n}", pa.int32()) for n in range(INDEXED_COLUMNS + 5)])
    found = statistics(wide, [{f"f{n}": n for n in range(INDEXED_COLUMNS + 5)}])
    assert len(found["maxValues"]["c"]) == len(found["nullCount"]["c"]) == INDEXED_COLUMNS


def test_only_the_rows_of_a_slice_count():
    schema = pa.schema([("c", pa.struct([("x", pa.int32())]))])
    values = [{"x": n} for n in range(10)]
    rows = pa.RecordBatch.from_pylist([{"c": value} for value in values], schema=schema)
    found = FileStatistics(schema)
    found.add(rows.slice(3, 4))
    told = json.loads(found.to_json())
    assert (told["numRecords"], told["minValues"], told["maxValues"]) == (
        4, {"c": {"x": 3}}, {"c": {"x": 6}}
    )  # fmt: skip
