"""Entries to columns: reading in bulk gives the result of reading message by message."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eos.errors import ConfigurationError, ProtocolError
from eos.wire.batch import (
    Compression,
    DecodedMessage,
    Message,
    decode_batch,
    encode_batches,
    rows_from_messages,
)
from eos.wire.batch._compression import compress
from eos.wire.commands import MessageMetadata
from eos.wire.decoding import (
    PADDING_BYTES,
    checked_columns,
    decode_entries,
)
from eos.wire.decoding._entry_decoder import entry_of
from tests.wire import entries as made
from tests.wire.decoding.entry_buffers import (
    ALL,
    TRAPS,
    EntryBuffer,
    batches,
    own,
    row,
    with_numbers,
)

# --- the same as message by message -------------------------------------------------------------


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(batches(), st.sampled_from(Compression)), min_size=1, max_size=6))
def test_written_batches_are_read_back(
    sent: list[tuple[list[Message], Compression]],
) -> None:
    entries = EntryBuffer()
    for messages, compression in sent:
        entries.add_batch(messages, compression)
    read = entries.decode()
    wanted = [message for messages, _ in sent for message in messages]
    assert [line["value"] for line in read] == [message.value for message in wanted]
    keys = [m.key.encode() if isinstance(m.key, str) else m.key for m in wanted]
    assert [line["key"] for line in read] == keys
    assert [line["event_time"] for line in read] == [m.event_time_ms for m in wanted]
    assert [line["ordering_key"] for line in read] == [m.ordering_key for m in wanted]
    pairs = [list((m.properties or {}).items()) for m in wanted]
    assert [line["properties"] for line in read] == pairs
    ids = [(line["entry"], line["batch_index"]) for line in read]
    assert ids == sorted(ids)
    assert [len(list(group)) for group in laid_groups(ids)] == [len(m) for m, _ in sent]


def laid_groups(ids: list[tuple[int, int]]) -> list[list[tuple[int, int]]]:
    groups: dict[int, list[tuple[int, int]]] = {}
    for place in ids:
        groups.setdefault(place[0], []).append(place)
    return list(groups.values())


@st.composite
def singles(draw: st.DrawFn) -> tuple[bytes, Compression, dict[str, Any]]:
    """The payload, the compression and the metadata of a message outside of a batch."""
    fields = st.fixed_dictionaries(
        {"sequence_id": st.integers(0, 2**63 - 1)},
        optional={
            "null_value": st.booleans(),
            "partition_key": st.sampled_from([b"", b"k", b"AA==", b"AA", b"A*==", b"\xff"]),
            "partition_key_b64_encoded": st.booleans(),
            "ordering_key": st.binary(max_size=3),
            "event_time": st.sampled_from([0, 5, 2**63 - 1]),
            "properties": st.lists(
                st.builds(made.commands.KeyValue, key=st.text(max_size=2), value=st.text()),
                max_size=3,
            ).map(tuple),
        },
    )
    return (
        draw(st.sampled_from([b"", b"a", b"abc" * 99])),
        draw(st.sampled_from(Compression)),
        draw(fields),
    )


@settings(max_examples=300, deadline=None)
@given(st.lists(singles(), min_size=1, max_size=6))
def test_messages_outside_of_batches_are_the_same_as_one_by_one(
    sent: list[tuple[bytes, Compression, dict[str, Any]]],
) -> None:
    entries = EntryBuffer()
    for payload, compression, fields in sent:
        stored, used = compress(memoryview(payload), compression)
        fields = {**fields, "compression": int(used) or None, "uncompressed_size": len(payload)}
        entries.add(bytes(stored), **fields)
    buffer = np.frombuffer(bytes(entries.data) + bytes(PADDING_BYTES), np.uint8)
    wanted: list[DecodedMessage] = []
    read: list[dict[str, Any]] = []
    failed: list[str] = []
    try:
        for entry in entries.entries:
            wanted += entry_of(buffer, entry).messages()
    except ProtocolError as error:
        failed.append(str(error))
    try:
        for decoded in decode_entries(buffer, entries.entries, ALL):
            read += with_numbers(decoded.batch).to_pylist()
    except ProtocolError as error:
        failed.append(str(error))
    assert own(read) == [row(message) for message in wanted]
    assert len(failed) in (0, 2)
    assert len(set(failed)) < 2
    assert all(line["batch_index"] == -1 for line in read)


# --- in bulk ------------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", Compression)
def test_regular_entries_become_one_batch_even_if_values_look_like_messages(
    compression: Compression, monkeypatch: pytest.MonkeyPatch
) -> None:
    def not_in_bulk(*_: object) -> None:
        raise AssertionError("read message by message")

    monkeypatch.setattr("eos.wire.decoding._entry_decoder._decode_in_pieces", not_in_bulk)
    entries = EntryBuffer()
    for size in (1, 7, 100):
        messages = [
            Message(
                TRAPS[n % len(TRAPS)] * (n % 3),
                key=b"\0\0\0\2\x18\0" * (n % 4),
                properties={f"name {i}": "\0\0\0\2\x18\0" for i in range(n % 3)},
            )
            for n in range(size)
        ]
        entries.add_batch(messages, Compression.NONE)
        entries.add_batch(messages, compression)
    buffer = np.frombuffer(bytes(entries.data) + bytes(PADDING_BYTES), np.uint8)
    (read,) = (decoded.batch for decoded in decode_entries(buffer, entries.entries, ALL))
    assert read.num_rows == 2 * 108


def test_one_irregular_entry_among_many_is_read_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    one_by_one = []

    def noted(payload: memoryview, count: int) -> list[DecodedMessage]:
        one_by_one.append(bytes(payload))
        return decode_batch(payload, count)

    monkeypatch.setattr("eos.wire.decoding._entry_decoder.iter_batch", noted)
    backwards = framed(b"\x40\x05\x18\x02", b"v2") + framed(b"\x28\x07\x18\x00")
    entries = EntryBuffer()
    for _ in range(20):
        entries.add_batch([Message(b"regular", key="k")] * 10, Compression.NONE)
    entries.add(backwards, num_messages_in_batch=2)
    entries.add_batch([Message(b"last")], Compression.NONE)
    read = entries.decode()
    assert [line["value"] for line in read] == [b"regular"] * 200 + [b"v2", b"", b"last"]
    assert [line["sequence_id"] for line in read[-3:]] == [5, None, None]
    assert [line["event_time"] for line in read[-3:]] == [None, 7, None]
    assert one_by_one == [backwards]


def framed(metadata: bytes, value: bytes = b"") -> bytes:
    return len(metadata).to_bytes(4, "big") + metadata + value


def test_large_groups_become_several_batches_and_a_large_entry_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("eos.wire.decoding._entry_decoder.GROUP_BYTES", 1000)
    sizes = [300, 300, 300, 300, 5000, 300, 990, 10]
    entries = EntryBuffer()
    for number, size in enumerate(sizes):
        entries.add_batch([Message(bytes([number]) * (size // 2))] * 2, Compression.NONE)
    buffer = np.frombuffer(bytes(entries.data) + bytes(PADDING_BYTES), np.uint8)
    read = list(decode_entries(buffer, entries.entries, ("value", "entry")))
    assert [one.batch["entry"].unique().to_pylist() for one in read] == [
        [0, 1, 2],
        [3],
        [4],
        [5],
        [6],
        [7],
    ]
    assert [one.last_id.entry for one in read] == [2, 3, 4, 5, 6, 7]
    values = [value for one in read for value in one.batch["value"].to_pylist()]
    assert values == [bytes([n]) * (size // 2) for n, size in enumerate(sizes) for _ in range(2)]


def test_a_candidate_inside_of_a_value_is_not_a_message() -> None:
    """The only candidate of the bulk search is inside of a value."""
    entries = EntryBuffer()
    value = b"before" + TRAPS[0] + b"after"
    entries.add(framed(b"\x40\x05\x18" + bytes([len(value)]), value), num_messages_in_batch=1)
    assert [line["value"] for line in entries.decode()] == [value]


def test_many_properties_and_long_metadata_are_read() -> None:
    many = {f"name {n}": "x" * n for n in range(500)}
    entries = EntryBuffer()
    entries.add_batch([Message(b"1", properties=many), Message(b"2")], Compression.NONE)
    assert [line["properties"] for line in entries.decode()] == [list(many.items()), []]


@pytest.mark.parametrize("first", [b"", b"\x40\x01"])
def test_messages_removed_by_compaction_are_omitted(first: bytes) -> None:
    payload = framed(b"\x18\x01", b"a") + framed(first + b"\x18\x00\x20\x01") + framed(b"\x18\x00")
    entries = EntryBuffer()
    entries.add(payload, num_messages_in_batch=3)
    assert [(line["value"], line["batch_index"]) for line in entries.decode()] == [
        (b"a", 0),
        (b"", 2),
    ]


def test_groups_are_split_by_uncompressed_size() -> None:
    entries = EntryBuffer()
    for _ in range(9):
        entries.add_batch([Message(bytes(1_000_000))], Compression.ZSTD)
    assert len(entries.data) < 10_000
    buffer = np.frombuffer(bytes(entries.data) + bytes(PADDING_BYTES), np.uint8)
    read = decode_entries(buffer, entries.entries, ("value",))
    assert [one.batch.num_rows for one in read] == [2, 2, 2, 2, 1]


# --- in pieces ------------------------------------------------------------------------------------


@settings(max_examples=150, deadline=None)
@given(batches(), st.sampled_from(Compression), st.integers(40, 400), st.integers(1, 9))
def test_a_large_entry_read_in_pieces_gives_the_result_of_reading_message_by_message(
    sent: list[Message], compression: Compression, size: int, most: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("eos.wire.decoding._message_boundaries.PIECE_BYTES", size)
        patch.setattr("eos.wire.decoding._message_boundaries.PIECE_MESSAGES", most)
        patch.setattr("eos.wire.decoding._message_boundaries._MIN_BULK_MESSAGES", 2)
        patch.setattr("eos.wire.decoding._entry_decoder._MAX_BULK_BYTES", 0)
        patch.setattr("eos.wire.decoding._entry_decoder._MAX_CACHED_BYTES", size)
        entries = EntryBuffer()
        entries.add_batch(sent, compression)
        entries.add_batch([Message(b"last")], Compression.NONE)
        read = entries.decode()
        buffer = np.frombuffer(bytes(entries.data) + bytes(PADDING_BYTES), np.uint8)
        decoded = list(decode_entries(buffer, entries.entries, ("value",)))
    assert [line["value"] for line in read] == [message.value for message in sent] + [b"last"]
    assert [line["batch_index"] for line in read] == [*range(len(sent)), 0]
    assert max(one.batch.num_rows for one in decoded) <= most
    whole = [one.is_whole for one in decoded]
    assert whole.count(True) == 2
    assert whole[-2:] == [True, True]


def test_no_piece_of_a_large_entry_is_yielded_if_its_last_message_is_malformed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("eos.wire.decoding._message_boundaries.PIECE_MESSAGES", 10)
    monkeypatch.setattr("eos.wire.decoding._entry_decoder._MAX_BULK_MESSAGES", 10)
    no_base64 = framed(b"\x12\x03abc\x18\x00\x30\x01")
    entries = EntryBuffer()
    entries.add_batch([Message(b"before")], Compression.NONE)
    entries.add(framed(b"\x18\x01", b"a") * 1000 + no_base64, num_messages_in_batch=1001)
    buffer = np.frombuffer(bytes(entries.data) + bytes(PADDING_BYTES), np.uint8)
    read = []
    with pytest.raises(ProtocolError, match=r"The entry 7:1:-1:-1 can't be read: .*base64"):
        read.extend(decode_entries(buffer, entries.entries, ("value", "key")))
    assert [one.batch["value"].to_pylist() for one in read] == [[b"before"]]


# --- entries --------------------------------------------------------------------------------------


def test_messages_outside_of_batches_are_rows() -> None:
    entries = EntryBuffer()
    entries.add(b"plain")
    entries.add(
        b"",
        partition_key=b"azE=",
        partition_key_b64_encoded=True,
        null_value=True,
        event_time=5,
        ordering_key=b"o",
        sequence_id=9,
        properties=(made.commands.KeyValue(key="a", value="b"),),
    )
    entries.add_batch([Message(b"batched")], Compression.LZ4)
    first, second, third = entries.decode()
    assert (first["value"], first["key"], first["batch_index"]) == (b"plain", None, -1)
    assert own([second]) == [
        row(DecodedMessage(None, b"k1", 5, (("a", "b"),), b"o", 9)),
    ]
    assert (third["value"], third["batch_index"]) == (b"batched", 0)


def test_a_key_of_any_bytes_is_read_as_in_a_batch() -> None:
    """C++ and Go producers send any bytes as text."""
    entries = EntryBuffer()
    entries.add(b"single", partition_key=b"\xff\xfe")
    entries.add(framed(b"\x12\x02\xff\xfe\x18\x01", b"v"), num_messages_in_batch=1)
    read = entries.decode(("key", "key_is_binary"))
    assert read == [{"key": b"\xff\xfe", "key_is_binary": False}] * 2


ODD_PAIR = b"\x0a\x01k\x12\x02a\xff"


@pytest.mark.parametrize("names", [("properties", "producer_name"), ALL])
def test_what_is_not_utf8_in_other_texts_is_replaced(names: tuple[str, ...]) -> None:
    """As in Java's client; many clients send any bytes as a property."""
    entries = EntryBuffer()
    batch = framed(b"\x0a\x07" + ODD_PAIR + b"\x18\x01", b"v") + framed(b"\x18\x01", b"w")
    for number, payload in ((2, batch), (None, b"single")):
        entries.add(payload, num_messages_in_batch=number, uuid="p")
        odd = entries.entries[-1].metadata.SerializeToString().replace(b"\1p", b"\1\xff")
        odd += b"\x22\x07" + ODD_PAIR
        entries.entries[-1] = entries.entries[-1]._replace(metadata=MessageMetadata.parse(odd))
    read = entries.decode(names)
    assert [line["properties"] for line in read] == [[("k", "a\ufffd")], [], [("k", "a\ufffd")]]
    assert {line["producer_name"] for line in read} == {"\ufffd"}
    buffer = np.frombuffer(bytes(entries.data) + bytes(PADDING_BYTES), np.uint8)
    single = entry_of(buffer, entries.entries[1])
    assert single.metadata.uuid == "\ufffd"
    assert single.properties == single.first_properties == {"k": "a\ufffd"}
    one_by_one = [m for entry in entries.entries for m in entry_of(buffer, entry).messages()]
    assert [line["properties"] for line in read] == [list(m.properties) for m in one_by_one]


def test_columns_of_the_entry_are_repeated_for_each_message() -> None:
    entries = EntryBuffer()
    (batch,) = encode_batches(rows_from_messages([Message(b"a"), Message(b"b")]))
    entries.add(
        bytes(batch.payload),
        num_messages_in_batch=2,
        publish_time=1700000000000,
        producer_name="writer",
        schema_version=b"\0\1",
    )
    names = ("ledger", "entry", "batch_index", "publish_time", "producer_name", "schema_version")
    assert [tuple(line[name] for name in names) for line in entries.decode()] == [
        (7, 0, 0, 1700000000000, "writer", b"\0\1"),
        (7, 0, 1, 1700000000000, "writer", b"\0\1"),
    ]


def test_only_the_requested_columns_are_returned_in_order() -> None:
    entries = EntryBuffer()
    entries.add_batch([Message(b"a", key="k")], Compression.NONE)
    assert [list(line) for line in entries.decode(("key", "value"))] == [["key", "value"]]


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"encryption_keys": (made.commands.EncryptionKeys(key="k"),)}, "encrypted"),
        ({"num_chunks_from_msg": 3}, "chunk"),
        ({"num_messages_in_batch": 0}, "0 messages"),
        ({"num_messages_in_batch": 1, "compression": 9}, "compression: 9"),
        ({"num_messages_in_batch": 2}, "truncated"),
    ],
)
def test_an_unreadable_entry_is_an_error_after_the_entries_before_it(
    fields: dict[str, Any], complaint: str
) -> None:
    entries = EntryBuffer()
    entries.add_batch([Message(b"good")], Compression.NONE)
    entries.add(framed(b"\x18\x01", b"a"), **fields)
    buffer = np.frombuffer(bytes(entries.data) + bytes(PADDING_BYTES), np.uint8)
    read = []
    with pytest.raises(ProtocolError, match=complaint):
        read += decode_entries(buffer, entries.entries, ("value",))
    assert [(one.last_id.entry, one.batch.to_pydict()) for one in read] == [
        (0, {"value": [b"good"]})
    ]


@pytest.mark.parametrize("names", [[], ["value", "value"], ["vlaue"]])
def test_invalid_columns_are_refused(names: list[str]) -> None:
    with pytest.raises(ConfigurationError, match="Choose from value, key"):
        checked_columns(names)
