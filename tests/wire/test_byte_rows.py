"""Short rows of bytes that are built by field equal those of a loop over rows."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from eos.wire.byte_rows import ByteRows, varint_widths

EDGES = [2**bits + step for bits in range(0, 64, 7) for step in (-1, 0)]
VALUES = st.sampled_from(EDGES) | st.integers(0, 2**64 - 1) | st.integers(0, 127)


def naive_varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def as_int64(values: list[int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(values, np.uint64).view(np.int64)


@given(st.lists(VALUES))
def test_varints_are_those_of_protobuf(values: list[int]) -> None:
    rows = ByteRows(len(values))
    rows.varint(as_int64(values))
    wanted = [naive_varint(value) for value in values]
    assert rows.array().to_pylist() == wanted
    assert rows.lengths.tolist() == [len(one) for one in wanted]
    assert varint_widths(as_int64(values)).tolist() == [len(one) for one in wanted]


@given(VALUES, st.integers(1, 5))
def test_varints_of_one_width_are_those_of_protobuf(value: int, count: int) -> None:
    rows = ByteRows(count)
    rows.varint(as_int64([value] * count))
    assert rows.array().to_pylist() == [naive_varint(value)] * count


def test_negative_values_take_ten_bytes() -> None:
    rows = ByteRows(2)
    rows.varint(np.array([-1, 1]))
    assert rows.array().to_pylist() == [b"\xff" * 9 + b"\x01", b"\x01"]


@given(st.lists(st.tuples(VALUES, st.booleans(), st.integers(0, 2**32 - 1))))
def test_fields_are_concatenated_for_the_selected_rows(
    drawn: list[tuple[int, bool, int]],
) -> None:
    where = np.array([there for _, there, _ in drawn], np.bool_)
    values = as_int64([value for value, _, _ in drawn])
    rows, more = ByteRows(len(drawn)), ByteRows(len(drawn))
    rows.uint32(np.array([fixed for _, _, fixed in drawn], np.int64))
    rows.byte(0x12, where)
    more.varint(values, where)
    more.byte(0x7F)
    rows.extend(more)
    wanted = [
        fixed.to_bytes(4, "big") + (b"\x12" + naive_varint(value) if there else b"") + b"\x7f"
        for value, there, fixed in drawn
    ]
    assert rows.array().to_pylist() == wanted
    assert rows.lengths.tolist() == [len(one) for one in wanted]
