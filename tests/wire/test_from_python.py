"""Columns of Python objects equal those of Arrow's own conversion."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eos.wire import from_python
from eos.wire.from_python import PROPERTIES, bytes_column, maps_column, numbers_column

BYTES = st.binary(max_size=20)
TEXT = st.text(max_size=20)


def same(ours: pa.Array, items: list[object], kind: pa.DataType) -> None:
    ours.validate(full=True)
    assert ours.equals(pa.array(items, kind))
    assert ours.null_count == items.count(None)


@given(st.lists(st.one_of(st.none(), BYTES, BYTES.map(bytearray), BYTES.map(memoryview), TEXT)))
def test_bytes(items):
    same(bytes_column(items, pa.binary()), items, pa.binary())


@given(st.lists(st.one_of(st.none(), TEXT)))
def test_text(items):
    same(bytes_column(items, pa.string()), items, pa.string())


WHOLE = st.integers(-(2**63), 2**63 - 1)


@given(st.lists(st.one_of(st.none(), WHOLE, st.floats(-(2**53), 2**53))))
def test_numbers(items):
    same(numbers_column(items), items, pa.int64())


@given(
    st.lists(st.one_of(st.none(), st.dictionaries(TEXT, st.one_of(st.none(), TEXT), max_size=4)))
)
def test_maps(items):
    wanted = [None if one is None else list(one.items()) for one in items]
    same(maps_column(items), wanted, PROPERTIES)


@pytest.mark.parametrize(
    ("make", "items"),
    [
        (lambda items: bytes_column(items, pa.binary()), [5]),
        (lambda items: bytes_column(items, pa.string()), ["\ud800"]),
        (numbers_column, ["5"]),
        (numbers_column, [True]),
        (numbers_column, [float("nan")]),
        (numbers_column, [2**63]),
        (maps_column, [{"key": 5}]),
        (maps_column, [{5: "value"}]),
        (maps_column, [{None: "value"}]),
    ],
)
def test_objects_of_other_types_are_refused(make, items):
    with pytest.raises((TypeError, ValueError, OverflowError)):
        make(items)


def test_more_bytes_than_32_bit_offsets_allow_are_refused(monkeypatch):
    monkeypatch.setattr(from_python, "_MAX_BYTES", 10)
    assert len(bytes_column([b"12345", b"67890"], pa.binary())) == 2
    with pytest.raises(ValueError, match="too many bytes"):
        bytes_column([b"12345", b"678901"], pa.binary())
