"""Partitioned tables: the written rows are read back, with any values."""

from __future__ import annotations

import math
import tempfile
from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eos.delta.rows import can_partition, folder_of, serialized, split
from eos.errors import InputError
from tests.delta.tables import appended, made, rows

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("text", pa.string()),
        ("day", pa.date32()),
        ("moment", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("real", pa.float64()),
        ("flag", pa.bool_()),
        ("small", pa.int16()),
    ]
)
COLUMNS = tuple(SCHEMA.names[1:])
VALUES = st.fixed_dictionaries(
    {
        "text": st.none() | st.text(max_size=60),
        "day": st.none() | st.dates(),
        "moment": st.none() | st.datetimes().map(lambda at: at.replace(tzinfo=UTC, fold=0)),
        "local": st.none() | st.datetimes().map(lambda at: at.replace(fold=0)),
        "real": st.none() | st.floats(),
        "flag": st.none() | st.booleans(),
        "small": st.none() | st.integers(-(2**15), 2**15 - 1),
    }
)


def shown(row: dict) -> str:
    """A row as Delta returns it: empty text is null, and NaN equals NaN."""
    return repr(sorted({**row, "text": row["text"] or None}.items()))


@settings(max_examples=30, deadline=None)
@given(values=st.lists(VALUES, min_size=1, max_size=5), repeat=st.integers(1, 3))
def test_a_partitioned_table_returns_the_written_rows(values, repeat):
    wanted = [{"id": n, **row} for n, row in enumerate(values * repeat)]
    with tempfile.TemporaryDirectory() as folder:
        table = made(f"{folder}/a table", SCHEMA, COLUMNS)
        appended(table, pa.RecordBatch.from_pylist(wanted, schema=SCHEMA))
        found = rows(table)
    utc = [{**row, "moment": row["moment"] and row["moment"].astimezone(UTC)} for row in found]
    assert [shown(row) for row in utc] == [shown(row) for row in wanted]


@given(
    values=st.lists(
        st.tuples(
            st.none() | st.sampled_from(["a", "b", ""]),
            st.none() | st.integers(0, 3),
            st.none() | st.floats(width=16),
        ),
        max_size=40,
    )
)
def test_splitting_keeps_every_row_in_its_partition(values):
    schema = pa.schema(
        [("a", pa.string()), ("n", pa.int64()), ("b", pa.int32()), ("c", pa.float64())]
    )
    given_rows = [{"a": a, "n": n, "b": b, "c": c} for n, (a, b, c) in enumerate(values)]
    batch = pa.RecordBatch.from_pylist(given_rows, schema=schema)
    seen: Counter[int] = Counter()
    for found, part in split(batch, ("a", "b", "c")):
        assert part.schema.names == ["n"]
        for number in part.column("n").to_pylist():
            seen[number] += 1
            a, b, c = values[number]
            assert (found["a"], found["b"]) == (a or None, None if b is None else str(b))
            assert (found["c"] is None) == (c is None)
            assert c is None or repr(float(found["c"])) == repr(c)
    assert seen == Counter(range(len(values)))


def test_values_are_written_as_the_protocol_says():
    values = {
        pa.scalar(date(1, 2, 3)): "0001-02-03",
        pa.scalar(datetime(2020, 1, 2, 3, 4, 5, 6), pa.timestamp("us")): (
            "2020-01-02 03:04:05.000006"
        ),
        pa.scalar(datetime(2020, 1, 2, 3, 4, 5, tzinfo=UTC), pa.timestamp("us", "UTC")): (
            "2020-01-02T03:04:05.000000Z"
        ),
        pa.scalar(True): "true",
        pa.scalar(""): None,
        pa.scalar(None, pa.int32()): None,
        pa.scalar(-7): "-7",
        pa.scalar(math.inf): "Infinity",
        pa.scalar(-math.inf): "-Infinity",
        pa.scalar(math.nan): "NaN",
        pa.scalar(Decimal("-1.50")): "-1.50",
        pa.scalar(Decimal("0.0000001")): "0.0000001",
    }
    assert [serialized(value, "c") for value in values] == list(values.values())


@pytest.mark.parametrize(
    "scalar",
    [
        pa.array([b"\xff"]).view(pa.string())[0],
        pa.scalar(-(10**17), pa.timestamp("us")),
        pa.scalar(10**7, pa.date32()),
    ],
    ids=["not UTF-8", "before year 1", "behind year 9999"],
)
def test_a_value_without_a_format_in_delta_is_refused_by_column(scalar):
    with pytest.raises(InputError, match="Partition column 'c'"):
        serialized(scalar, "c")


def test_empty_text_is_refused_in_a_required_partition_column():
    schema = pa.schema([pa.field("a", pa.string(), nullable=False), ("n", pa.int64())])
    batch = pa.RecordBatch.from_pylist([{"a": "", "n": 1}], schema=schema)
    with pytest.raises(InputError, match="no empty text"):
        list(split(batch, ("a",)))


@pytest.mark.parametrize("text", ["..", ".", "/", "a/../../b", "_delta_log", "%2e%2e", "é" * 500])
def test_a_partitions_folder_stays_inside_the_table_and_fits_into_a_file_system(text):
    folder = folder_of({text: text})
    assert folder.count("/") == 1
    assert "=" in folder
    assert len(folder) <= 255
    assert folder.isascii()


def test_binary_and_nested_columns_can_not_partition():
    assert not any(map(can_partition, [pa.binary(), pa.list_(pa.int32()), pa.struct([])]))
