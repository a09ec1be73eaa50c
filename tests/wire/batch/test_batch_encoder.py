"""Rows are encoded to batches with the same rows, in order, within the limits."""

from __future__ import annotations

import base64
import json
import os
import zlib
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eos.wire.batch import (
    AUTO,
    Compression,
    DecodedMessage,
    EncodedBatch,
    Message,
    Rows,
    StickyKey,
    decode_batch,
    decompress,
    encode_batches,
    rows_from_messages,
)
from eos.wire.batch._metadata import message_sizes
from eos.wire.checksum import crc32c

VECTORS = json.loads((Path(__file__).parent / "vectors" / "java_batches.json").read_text())

MAP = pa.map_(pa.string(), pa.string())
LARGE_MAP = pa.map_(pa.large_string(), pa.large_string())
EVENT_TIMES = st.one_of(
    st.none(), st.integers(0, 2**63 - 1), st.sampled_from([2**bits - 1 for bits in range(63)])
)
PROPERTIES = st.none() | st.dictionaries(st.text(max_size=5), st.text(max_size=200), max_size=4)


@st.composite
def columns(draw: st.DrawFn) -> Rows:
    """Rows of any column types, with nulls, usually a slice from the middle of longer columns."""
    count = draw(st.integers(0, 30))
    start = draw(st.integers(0, count))
    stop = draw(st.integers(start, count))

    def column(items: st.SearchStrategy[Any], kinds: list[pa.DataType]) -> pa.Array:
        drawn = draw(st.lists(items, min_size=count, max_size=count))
        return pa.array(drawn, draw(st.sampled_from(kinds)))

    def optional(items: st.SearchStrategy[Any], kinds: list[pa.DataType]) -> pa.Array | None:
        return column(items, kinds) if draw(st.booleans()) else None

    blobs = st.binary(max_size=30) | st.integers(0, 400).map(lambda size: b"v" * size)
    texts = st.text(max_size=20) | st.integers(0, 400).map(lambda size: "t" * size)
    value = draw(
        st.sampled_from(
            [
                (blobs, [pa.binary(), pa.large_binary()]),
                (texts, [pa.string(), pa.large_string()]),
            ]
        )
    )
    key = draw(
        st.sampled_from(
            [
                (st.none() | blobs, [pa.binary(), pa.large_binary()]),
                (st.none() | texts, [pa.string(), pa.large_string()]),
            ]
        )
    )
    maps = PROPERTIES.map(lambda found: None if found is None else list(found.items()))
    keys = optional(*key)
    if draw(st.booleans()) and keys is not None and not keys.null_count:
        value = (st.none() | value[0], value[1])
    rows = Rows(
        value=column(*value),
        tombstones=True,
        key=keys,
        event_time_ms=optional(EVENT_TIMES, [pa.int64()]),
        properties=optional(maps, [MAP, LARGE_MAP]),
        ordering_key=optional(st.none() | blobs, [pa.binary(), pa.large_binary()]),
    )
    return rows.slice(start, stop)


def as_messages(rows: Rows) -> list[DecodedMessage]:
    """The same rows, built from Python objects."""
    count = len(rows)

    def items(column: pa.Array | None) -> list[Any]:
        return [None] * count if column is None else column.to_pylist()

    return [
        DecodedMessage(
            value=value.encode() if isinstance(value, str) else value,
            key=key,
            event_time_ms=event_time_ms,
            properties=tuple(properties or ()),
            ordering_key=ordering_key,
        )
        for value, key, event_time_ms, properties, ordering_key in zip(
            items(rows.value),
            items(rows.key),
            items(rows.event_time_ms),
            items(rows.properties),
            items(rows.ordering_key),
            strict=True,
        )
    ]


def decode(batches: list[EncodedBatch]) -> list[DecodedMessage]:
    return [
        message for batch in batches for message in decode_batch(batch.payload, batch.num_messages)
    ]


def key_on_the_wire(key: str | bytes | None) -> bytes:
    if isinstance(key, bytes):
        return base64.b64encode(key)
    return b"" if key is None else key.encode()


@settings(max_examples=300, deadline=None)
@given(columns(), st.integers(1, 2000), st.integers(1, 40))
def test_encoded_rows_decode_to_the_same_rows_in_order(
    rows: Rows, max_bytes: int, max_messages: int
) -> None:
    batches = list(encode_batches(rows, max_bytes, max_messages))
    assert decode(batches) == as_messages(rows)
    for batch in batches:
        messages = decode_batch(batch.payload, batch.num_messages)
        values = b"".join(message.value or b"" for message in messages)
        keys = b"".join(key_on_the_wire(message.key) for message in messages)
        assert batch.value_and_key_bytes == len(values) + len(keys)
        assert batch.checksum == crc32c(values + keys)


@settings(max_examples=100, deadline=None)
@given(columns(), st.integers(1, 2000), st.integers(1, 40))
def test_batches_are_as_full_as_the_limits_allow(
    rows: Rows, max_bytes: int, max_messages: int
) -> None:
    batches = list(encode_batches(rows, max_bytes, max_messages))
    sizes = message_sizes(rows)
    assert sum(len(batch.payload) for batch in batches) == sizes.sum()
    row = 0
    for batch in batches:
        assert 1 <= batch.num_messages <= max_messages
        assert len(batch.payload) <= max_bytes or batch.num_messages == 1
        row += batch.num_messages
        if row < len(rows):
            is_full = len(batch.payload) + sizes[row] > max_bytes
            assert is_full or batch.num_messages == max_messages


@settings(max_examples=100, deadline=None)
@given(columns())
def test_a_message_does_not_exceed_its_size_bound(rows: Rows) -> None:
    assert (np.diff(rows.size_bounds()) >= message_sizes(rows)).all()


def test_the_bound_holds_for_many_long_properties_and_a_long_binary_key() -> None:
    properties = {"k" * 200 + str(i): "v" * 200 for i in range(200)}
    message = Message(b"", b"k" * 100_000, 2**63 - 1, properties, b"o" * 100_000)
    rows = rows_from_messages([message])
    (size,) = message_sizes(rows)
    assert size <= rows.size_bounds()[-1] < size + 2000


@pytest.mark.parametrize("compression", [one for one in Compression if one])
def test_a_compressed_batch_has_its_uncompressed_size(
    compression: Compression,
) -> None:
    rows = Rows(pa.array([b"the same again"] * 1000))
    (plain,) = encode_batches(rows)
    (batch,) = encode_batches(rows, compression=compression)
    assert batch.compression is compression
    assert len(batch.payload) < len(plain.payload) == batch.uncompressed_bytes
    assert (batch.checksum, batch.value_and_key_bytes) == (plain.checksum, 14_000)
    if compression is Compression.ZLIB:
        assert zlib.decompress(batch.payload) == plain.payload
    else:
        codec = {1: "lz4_raw", 3: "zstd", 4: "snappy"}[compression]
        opened = pa.decompress(batch.payload, batch.uncompressed_bytes, codec, asbytes=True)
        assert opened == plain.payload


@pytest.mark.parametrize("compression", list(Compression))
def test_incompressible_payloads_stay_uncompressed(compression: Compression) -> None:
    rows = Rows(pa.array([os.urandom(500)]))
    (batch,) = encode_batches(rows, compression=compression)
    assert batch.compression is Compression.NONE
    assert len(batch.payload) == batch.uncompressed_bytes


def sticky_of(message: DecodedMessage) -> StickyKey:
    """The sticky key by the broker's rule: the ordering key, else the key."""
    if message.ordering_key is not None:
        return StickyKey(ordering_key=message.ordering_key)
    if message.key is None:
        return StickyKey()
    text = key_on_the_wire(message.key)
    return StickyKey(partition_key=text, is_base64=isinstance(message.key, bytes))


@settings(max_examples=200, deadline=None)
@given(columns(), st.integers(1, 2000), st.integers(1, 40), st.data())
def test_with_edges_the_batches_are_those_of_each_part(
    rows: Rows, max_bytes: int, max_messages: int, data: st.DataObject
) -> None:
    inner = data.draw(st.sets(st.integers(1, max(1, len(rows) - 1))))
    edges = [0, *sorted(edge for edge in inner if edge < len(rows))]
    together = list(encode_batches(rows, max_bytes, max_messages, edges=edges))
    alone = [
        batch
        for start, stop in pairwise([*edges, len(rows)])
        for batch in encode_batches(rows.slice(start, stop), max_bytes, max_messages)
    ]
    assert together == alone


def test_many_small_batches_share_one_join() -> None:
    rows = Rows(pa.array([b"%d" % n for n in range(1000)]))
    batches = list(encode_batches(rows, edges=range(0, 1000, 10)))
    assert len(batches) == 100
    owners = {id(batch.payload.obj) for batch in batches}
    assert len(owners) == 1
    values = [m.value for b in batches for m in decode_batch(b.payload, b.num_messages)]
    assert values == [b"%d" % n for n in range(1000)]


@settings(max_examples=200, deadline=None)
@given(columns(), st.integers(1, 2000), st.integers(1, 40))
def test_by_key_a_batch_has_one_key_and_each_key_keeps_its_order(
    rows: Rows, max_bytes: int, max_messages: int
) -> None:
    found: dict[StickyKey, list[DecodedMessage]] = {}
    for batch in encode_batches(rows, max_bytes, max_messages, by_key=True):
        messages = decode_batch(batch.payload, batch.num_messages)
        assert {sticky_of(message) for message in messages} == {batch.sticky}
        assert batch.num_messages <= max_messages
        found.setdefault(sticky_of(messages[0]), []).extend(messages)
    wanted: dict[StickyKey, list[DecodedMessage]] = {}
    for message in as_messages(rows):
        wanted.setdefault(sticky_of(message), []).append(message)
    assert list(found.items()) == list(wanted.items())


def test_by_key_batches_of_one_key_are_filled_across_chunks() -> None:
    count = 200_000
    keys = pa.array([f"k{n % 3}" for n in range(count)])
    rows = Rows(pa.array([b"v" * 50] * count), keys)
    batches = list(encode_batches(rows, 1 << 20, by_key=True))
    assert sum(batch.num_messages for batch in batches) == count
    per_key = [[b for b in batches if b.sticky == StickyKey(b"k%d" % n)] for n in range(3)]
    assert sum(map(len, per_key)) == len(batches)
    for mine in per_key:
        assert all(len(batch.payload) > (1 << 20) - 100 for batch in mine[:-1])


def test_no_rows_make_no_batch() -> None:
    assert list(encode_batches(Rows(pa.array([], pa.binary())))) == []
    empty = Rows(pa.array([b"a"]), pa.array(["k"]), pa.array([1]), pa.array([[]], MAP))
    assert list(encode_batches(empty.slice(1, 1))) == []
    nothing = pa.py_buffer(b"")
    no_offsets = pa.Array.from_buffers(pa.binary(), 0, [None, nothing, nothing])
    assert list(encode_batches(Rows(no_offsets, no_offsets))) == []


def test_a_column_of_nulls_is_like_a_missing_column() -> None:
    value = pa.array([b"a", b"b"])
    plain = list(encode_batches(Rows(value)))
    nulls = Rows(value, pa.nulls(2, pa.string()), pa.nulls(2, pa.int64()), pa.nulls(2, MAP))
    assert list(encode_batches(nulls)) == plain


def test_hidden_bytes_of_null_rows_are_not_written() -> None:
    valid = pa.array([True, False, True]).buffers()[1]
    offsets = pa.py_buffer(np.array([0, 1, 2, 3], np.int32))
    letters = pa.py_buffer(b"abc")
    key = pa.Array.from_buffers(pa.string(), 3, [valid, offsets, letters])
    entries = pa.MapArray.from_arrays(
        pa.array([0, 3], pa.int32()), pa.array(["x", "y", "z"]), pa.array(["x", None, "z"])
    ).values
    maps = pa.Array.from_buffers(MAP, 3, [valid, offsets], children=[entries])
    rows = Rows(pa.array([b"1", b"2", b"3"]), key, None, maps, key.cast(pa.binary()))
    assert decode(list(encode_batches(rows))) == [
        DecodedMessage(b"1", "a", None, (("x", "x"),), b"a"),
        DecodedMessage(b"2"),
        DecodedMessage(b"3", "c", None, (("z", "z"),), b"c"),
    ]


def test_batches_are_filled_across_chunks() -> None:
    count = 300_000
    rng = np.random.default_rng(7)
    ends = np.concatenate([[0], np.cumsum(rng.integers(0, 200, count))]).astype(np.int32)
    data = rng.integers(0, 256, int(ends[-1]), np.uint8)
    value = pa.Array.from_buffers(
        pa.binary(), count, [None, pa.py_buffer(ends), pa.py_buffer(data)]
    )
    rows = Rows(value, pa.array(np.arange(count)).cast(pa.string()))
    batches = list(encode_batches(rows, 100_000))
    assert sum(batch.num_messages for batch in batches) == count
    assert all(98_000 < len(batch.payload) <= 100_000 for batch in batches[:-1])
    row = 0
    for batch in (*batches[:3], *batches[-3:]):
        row = 0 if batch is batches[0] else row
        if batch is batches[-3]:
            row = count - sum(late.num_messages for late in batches[-3:])
        part = rows.slice(row, row + batch.num_messages)
        assert decode_batch(batch.payload, batch.num_messages) == as_messages(part)
        row += batch.num_messages
    values = crc32c(value.buffers()[2])
    assert values == crc32c(b"".join(joined_values(batch) for batch in batches))


def joined_values(batch: EncodedBatch) -> bytes:
    messages = decode_batch(batch.payload, batch.num_messages)
    return b"".join(message.value or b"" for message in messages)


def test_a_message_larger_than_a_batch_gets_its_own_batch() -> None:
    values = [b"a", b"x" * 20_000_000, b"b", b"y" * 70_000_000, b"c", b"d"]
    batches = list(encode_batches(Rows(pa.array(values)), 1000))
    assert [batch.num_messages for batch in batches] == [1, 1, 1, 1, 2]
    assert b"".join(joined_values(batch) for batch in batches) == b"".join(values)


def test_a_batch_limit_above_64_mib_is_reduced_to_it() -> None:
    values = pa.array([b"x" * 1_000_000]).take(pa.array(np.zeros(100, np.int64)))
    batches = list(encode_batches(Rows(values), 2**40))
    assert sum(batch.num_messages for batch in batches) == 100
    assert max(len(batch.payload) for batch in batches) <= 64 << 20


def test_rows_that_begin_beyond_2_gib_of_their_buffer_are_encoded() -> None:
    zeros = pa.py_buffer(np.zeros(3 << 30, np.uint8))  # never touched but at its end
    ends = np.array([0, (3 << 30) - 5, (3 << 30) - 2, 3 << 30], np.int64)
    value = pa.Array.from_buffers(pa.large_binary(), 3, [None, pa.py_buffer(ends), zeros])
    (batch,) = encode_batches(Rows(value).slice(1, 3))
    assert decode([batch]) == [DecodedMessage(bytes(3)), DecodedMessage(bytes(2))]


def test_the_payload_is_a_view_without_a_copy() -> None:
    (batch,) = encode_batches(Rows(pa.array([b"\xff" * 10])))
    assert isinstance(batch.payload, memoryview)
    assert batch.payload.format == "B"
    assert batch.payload[-1] == 0xFF
    assert isinstance(batch.payload.obj, pa.Buffer)


@pytest.mark.parametrize(("max_bytes", "max_messages"), [(0, 1), (1, 0)])
def test_a_limit_below_one_message_is_an_error(max_bytes: int, max_messages: int) -> None:
    with pytest.raises(ValueError, match="room"):
        list(encode_batches(Rows(pa.array([b"a"])), max_bytes, max_messages))


# --- golden vectors of the Java client -----------------------------------------------------


def java_messages(vector: dict[str, Any]) -> list[Message]:
    def blob(text: str | None) -> bytes | None:
        return None if text is None else bytes.fromhex(text)

    def text(found: str | None) -> str | None:
        return None if found is None else bytes.fromhex(found).decode()

    return [
        Message(
            value=blob(row["value"]),
            key=text(row["key"]) if row["key_bytes"] is None else blob(row["key_bytes"]),
            event_time_ms=row["event_time_ms"],
            properties=None
            if row["properties"] is None
            else {text(key) or "": text(value) or "" for key, value in row["properties"]},
            ordering_key=blob(row["ordering_key"]),
        )
        for row in vector["rows"]
    ]


@pytest.fixture(params=VECTORS, ids=lambda vector: str(vector["name"]))
def vector(request: pytest.FixtureRequest) -> dict[str, Any]:
    found: dict[str, Any] = request.param
    return found


def test_encoded_bytes_are_those_of_the_java_client(vector: dict[str, Any]) -> None:
    (batch,) = encode_batches(rows_from_messages(java_messages(vector)))
    assert batch.payload.hex() == vector["fields"]


def test_batches_of_the_java_client_decode_to_the_same_messages(vector: dict[str, Any]) -> None:
    rows = rows_from_messages(java_messages(vector))
    (batch,) = encode_batches(rows)
    ours = decode([batch])
    client = decode_batch(bytes.fromhex(vector["client"]), len(rows))
    assert [message.sequence_id for message in client] == list(range(41, 41 + len(rows)))
    assert [replace(message, sequence_id=None) for message in client] == ours
    assert ours == as_messages(rows)


@pytest.mark.parametrize(
    ("value", "is_worth_it"),
    [(b"the quick brown fox " * 5, True), (os.urandom(100), False), (b"ab", True)],
    ids=["text", "noise", "short"],
)
def test_auto_compresses_payloads_that_become_much_smaller(value: bytes, is_worth_it: bool) -> None:
    rows = Rows(pa.array([value] * 50 if is_worth_it else [os.urandom(100) for _ in range(50)]))
    (plain,), (batch,) = encode_batches(rows), encode_batches(rows, compression=AUTO)
    assert batch.compression is (Compression.LZ4 if is_worth_it else Compression.NONE)
    assert decompress(bytes(batch.payload), batch.compression, batch.uncompressed_bytes) == bytes(
        plain.payload
    )
    assert (batch.checksum, batch.value_and_key_bytes) == (
        plain.checksum,
        plain.value_and_key_bytes,
    )


def test_auto_tests_only_the_first_bytes() -> None:
    noise, text = os.urandom(100_000), b"x" * 100_000
    (batch,) = encode_batches(Rows(pa.array([noise, text])), compression=AUTO)
    assert batch.compression is Compression.NONE
    (batch,) = encode_batches(Rows(pa.array([text[:5000], noise])), compression=AUTO)
    assert batch.compression is Compression.LZ4
    assert len(batch.payload) < batch.uncompressed_bytes


@pytest.mark.parametrize("value", [b"", b"ab"], ids=repr)
def test_auto_leaves_tiny_entries_uncompressed(value: bytes) -> None:
    (batch,) = encode_batches(Rows(pa.array([value])), compression=AUTO)
    assert batch.compression is Compression.NONE
