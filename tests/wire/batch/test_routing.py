"""Keys have the partitions of the Java client; grouping by partition keeps rows and their order."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eos.errors import InputError
from eos.wire.batch import (
    Hashing,
    Message,
    Rows,
    by_partition,
    key_slices,
    partitions_for_keys,
    rows_from_messages,
)

VECTORS = json.loads((Path(__file__).parent / "vectors" / "java_routing.json").read_text())
TEXT = [vector for vector in VECTORS if vector["kind"] == "text"]
BINARY = [vector for vector in VECTORS if vector["kind"] == "binary"]


def java_partition(key: str, count: int) -> int:
    """The definition: ``String.hashCode()`` over UTF-16, without its sign, modulo ``count``."""
    units = key.encode("utf-16-be")
    result = 0
    for index in range(0, len(units), 2):
        result = (31 * result + int.from_bytes(units[index : index + 2], "big")) % 2**32
    return (result & 0x7FFFFFFF) % count


@pytest.mark.parametrize("count", [1, 2, 3, 4, 16, 100])
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_text_keys_have_the_partitions_of_the_java_client(count: int, kind: pa.DataType) -> None:
    keys = pa.array([bytes.fromhex(vector["key"]).decode() for vector in TEXT], kind)
    wanted = [vector["partitions"][str(count)] for vector in TEXT]
    assert partitions_for_keys(keys, count).tolist() == wanted


@pytest.mark.parametrize("count", [1, 2, 3, 4, 16, 100])
@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
def test_binary_keys_have_the_partitions_of_the_java_client(count: int, kind: pa.DataType) -> None:
    keys = pa.array([bytes.fromhex(vector["key"]) for vector in BINARY], kind)
    wanted = [vector["partitions"][str(count)] for vector in BINARY]
    assert partitions_for_keys(keys, count).tolist() == wanted


@pytest.mark.parametrize("count", [1, 2, 3, 4, 16, 100])
def test_murmur3_keys_have_the_partitions_of_the_java_client(count: int) -> None:
    for vectors, kind in ((TEXT, pa.string()), (BINARY, pa.binary())):
        keys = pa.array([bytes.fromhex(one["key"]) for one in vectors], pa.binary()).cast(kind)
        wanted = [vector["murmur3"][str(count)] for vector in vectors]
        found = partitions_for_keys(keys, count, hashing=Hashing.MURMUR3)
        assert found.tolist() == wanted
        for start in range(0, len(vectors), 7):  # a few at a time, and one by one
            part = partitions_for_keys(keys.slice(start, 2), count, hashing=Hashing.MURMUR3)
            assert part.tolist() == wanted[start : start + 2]


def test_murmur3_of_known_words() -> None:
    """The usual reference values for implementations of MurmurHash3_x86_32."""
    words = {"": 0, "test": 0xBA6BD213, "Hello, world!": 0xC0363E43, "a" * 4096: None}
    keys = pa.array(list(words))
    found = partitions_for_keys(keys, 2**31 - 1, hashing=Hashing.MURMUR3).tolist()
    for number, expected in zip(found, words.values(), strict=True):
        assert expected is None or number == (expected & 0x7FFFFFFF) % (2**31 - 1)


@given(st.lists(st.none() | st.text(max_size=40)))
def test_murmur3_of_many_keys_is_that_of_each(keys: list[str | None]) -> None:
    array = pa.array(keys, pa.string())
    together = partitions_for_keys(array, 1000, hashing=Hashing.MURMUR3)
    alone = [
        int(partitions_for_keys(array.slice(at, 1), 1000, hashing=Hashing.MURMUR3)[0])
        for at in range(len(keys))
    ]
    assert together.tolist() == alone


def test_the_golden_vectors_exist() -> None:
    assert len(TEXT) == 240
    assert len(BINARY) == 60
    assert any(vector["hash"] > 2**30 for vector in TEXT)


@given(st.lists(st.none() | st.text(max_size=30)), st.integers(1, 200), st.data())
def test_any_key_is_routed_by_its_hash_code(
    keys: list[str | None], count: int, data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(keys)))
    keyless = data.draw(st.integers(0, count - 1))
    wanted = [keyless if key is None else java_partition(key, count) for key in keys[start:]]
    array = pa.array(keys, pa.string()).slice(start)
    found = partitions_for_keys(array, count, keyless_partition=keyless)
    assert found.dtype == np.int32
    assert found.tolist() == wanted


def test_keys_of_several_chunks_and_a_key_larger_than_a_chunk() -> None:
    keys = ["k" * 600_000, "é" * 700_000, "", "😀" * 300_000, "x" * 1_500_000, "end"]
    wanted = [java_partition(key, 97) for key in keys]
    assert partitions_for_keys(pa.array(keys), 97).tolist() == wanted


@pytest.mark.parametrize("parts", [[b"\xff"], [b"ok", b"\xc3", b"\xa9"], [b"\xed\xa0\x80"]])
def test_a_key_that_is_not_utf8_is_refused_even_if_the_next_one_completes_it(
    parts: list[bytes],
) -> None:
    torn = pa.Array.from_buffers(pa.string(), len(parts), pa.array(parts).buffers())
    with pytest.raises(InputError, match="UTF-8"):
        partitions_for_keys(torn, 4)


def test_no_keys_have_no_partitions() -> None:
    assert partitions_for_keys(pa.array([], pa.string()), 4).tolist() == []
    assert partitions_for_keys(pa.nulls(2, pa.string()), 4, keyless_partition=3).tolist() == [3, 3]


def test_the_keyless_partition_must_exist() -> None:
    with pytest.raises(ValueError, match="Partition 4 is not one of 4"):
        partitions_for_keys(pa.array(["a"]), 4, keyless_partition=4)


@given(st.lists(st.integers(0, 5) | st.integers(65_534, 65_538)))
def test_splitting_keeps_every_row_and_the_order_in_each_partition(numbers: list[int]) -> None:
    messages = [
        Message(b"%d" % i, f"key-{i}", i, {"row": str(i)} if i % 2 else None)
        for i in range(len(numbers))
    ]
    rows = rows_from_messages(messages)
    partitions = np.array(numbers, np.int32)
    ordered, slices = by_partition(rows, partitions)
    split = {one.partition: ordered.slice(one.start, one.stop) for one in slices}
    assert list(split) == sorted(set(partitions.tolist()))
    for partition, part in split.items():
        wanted = [i for i, number in enumerate(partitions) if number == partition]
        assert part.value.to_pylist() == [b"%d" % i for i in wanted]
        assert part.key is not None
        assert part.key.to_pylist() == [f"key-{i}" for i in wanted]
        if part.properties is not None:
            properties = [[("row", str(i))] if i % 2 else None for i in wanted]
            assert part.properties.to_pylist() == properties


def test_rows_of_one_partition_are_not_copied() -> None:
    rows = Rows(pa.array([b"a", b"b"]))
    same, slices = by_partition(rows, np.array([7, 7], np.int32))
    assert slices == [(7, 0, 2)]
    assert same is rows


def test_splitting_needs_a_partition_for_each_row() -> None:
    with pytest.raises(ValueError, match="1 partitions for 2 rows"):
        by_partition(Rows(pa.array([b"a", b"b"])), np.array([0], np.int32))


@pytest.mark.parametrize("hashing", list(Hashing))
def test_slices_of_keys_have_similar_sizes_within_each_partition(hashing: Hashing) -> None:
    text = pa.array([f"key-{n}" for n in range(8000)])
    slices = key_slices(text.cast(pa.binary()), 4)
    partitions = partitions_for_keys(text, 8, hashing=hashing)
    for partition in range(8):
        counts = np.bincount(slices[partitions == partition], minlength=4)
        assert len(counts) == 4
        assert counts.min() > 0.7 * counts.mean()


def test_equal_keys_are_in_one_slice_and_null_keys_in_the_first() -> None:
    keys = pa.array([b"a", None, b"b", b"a", b"", None], pa.binary())
    slices = key_slices(keys, 1000)
    assert slices[0] == slices[3] != slices[2]
    assert slices[[1, 4, 5]].tolist() == [0, 0, 0]
