"""The crc and the project's checksum, compared with definitions that need no library."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eos.wire.checksum import crc32c, entry_checksum


def naive_crc32c(data: bytes) -> int:
    """Bit by bit: the reflected Castagnoli polynomial."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def test_the_check_value_of_the_standard() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert naive_crc32c(b"123456789") == 0xE3069283


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_a_seed_continues_a_crc(first: bytes, second: bytes) -> None:
    assert crc32c(second, crc32c(first)) == naive_crc32c(first + second)


def test_every_kind_of_buffer_has_the_same_crc() -> None:
    data = b"prefix" + bytes(range(256)) * 10
    wanted = crc32c(data[6:])
    assert crc32c(memoryview(data)[6:]) == wanted
    assert crc32c(memoryview(bytearray(data))[6:]) == wanted
    assert crc32c(pa.py_buffer(data).slice(6)) == wanted
    assert crc32c(memoryview(pa.py_buffer(data).slice(6))) == wanted
    assert crc32c(memoryview(np.frombuffer(data, np.uint8))[6:]) == wanted


def test_the_bytes_of_a_memoryview_are_not_copied() -> None:
    view = memoryview(np.zeros(64 << 20, np.uint8))
    before = pa.total_allocated_bytes()
    crc32c(view)
    assert pa.py_buffer(view).address == np.frombuffer(view, np.uint8).ctypes.data
    assert pa.total_allocated_bytes() == before


def test_a_memoryview_that_is_not_contiguous_is_refused() -> None:
    with pytest.raises(ValueError, match="contiguous"):
        crc32c(memoryview(b"abcdef")[::2])


@given(st.lists(st.tuples(st.binary(max_size=20), st.binary(max_size=20)), max_size=10))
def test_an_entrys_checksum_covers_values_then_keys(rows: list[tuple[bytes, bytes]]) -> None:
    values = b"".join(value for value, _ in rows)
    keys = b"".join(key for _, key in rows)
    assert entry_checksum(values, keys) == naive_crc32c(values + keys)
