"""Entries to columns: what is read in bulk is what is read message by message."""

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
from eos.wire.decoding import (
    PADDING_BYTES,
    checked_columns,
    decode_entries,
)
from tests.wire import entries as made
from tests.wire.decoding.laid import ALL, TRAPS, Laid, batches, own, row

# --- the same as message by message -------------------------------------------------------------


@settings(max_examples=400, deadline=None)
@given(st.lists(st.tuples(batches(), st.sampled_from(Compression)), min_size=1, max_size=6))
def test_batches_are_read_as_they_were_written(
    sent: list[tuple[list[Message], Compression]],
) -> None:
    laid = Laid()
    for messages, compression in sent:
        laid.add_batch(messages, compression)
    read = laid.decode()
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


# --- in bulk ------------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", Compression)
def test_what_is_regular_becomes_one_batch_whatever_its_values_look_like(
    compression: Compression, monkeypatch: pytest.MonkeyPatch
) -> None:
    def not_in_bulk(*_: object) -> None:
        raise AssertionError("read message by message")

    monkeypatch.setattr("eos.wire.decoding._entry_decoder._decode_in_pieces", not_in_bulk)
    laid = Laid()
    for size in (1, 7, 100):
        messages = [
            Message(
                TRAPS[n % len(TRAPS)] * (n % 3),
                key=b"\0\0\0\2\x18\0" * (n % 4),
                properties={f"name {i}": "\0\0\0\2\x18\0" for i in range(n % 3)},
            )
            for n in range(size)
        ]
        laid.add_batch(messages, Compression.NONE)
        laid.add_batch(messages, compression)
    buffer = np.frombuffer(bytes(laid.data) + bytes(PADDING_BYTES), np.uint8)
    laid.entries.sort(key=lambda entry: entry.metadata.compression)
    read = [decoded.batch for decoded in decode_entries(buffer, laid.entries, ALL)]
    assert sum(batch.num_rows for batch in read) == 2 * 108
    assert len(read) == (1 if compression is Compression.NONE else 2)


def test_one_odd_entry_among_many_is_read_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    one_by_one = []

    def noted(payload: memoryview, count: int) -> list[DecodedMessage]:
        one_by_one.append(bytes(payload))
        return decode_batch(payload, count)

    monkeypatch.setattr("eos.wire.decoding._entry_decoder.iter_batch", noted)
    backwards = framed(b"\x40\x05\x18\x02", b"v2") + framed(b"\x28\x07\x18\x00")
    laid = Laid()
    for _ in range(20):
        laid.add_batch([Message(b"regular", key="k")] * 10, Compression.NONE)
    laid.add(backwards, num_messages_in_batch=2)
    laid.add_batch([Message(b"last")], Compression.NONE)
    read = laid.decode()
    assert [line["value"] for line in read] == [b"regular"] * 200 + [b"v2", b"", b"last"]
    assert [line["sequence_id"] for line in read[-3:]] == [5, None, None]
    assert [line["event_time"] for line in read[-3:]] == [None, 7, None]
    assert one_by_one == [backwards]


def framed(metadata: bytes, value: bytes = b"") -> bytes:
    return len(metadata).to_bytes(4, "big") + metadata + value


def test_what_is_much_becomes_several_batches_and_a_large_entry_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("eos.wire.decoding._entry_decoder._GROUP_BYTES", 1000)
    sizes = [300, 300, 300, 300, 5000, 300, 990, 10]
    laid = Laid()
    for number, size in enumerate(sizes):
        laid.add_batch([Message(bytes([number]) * (size // 2))] * 2, Compression.NONE)
    buffer = np.frombuffer(bytes(laid.data) + bytes(PADDING_BYTES), np.uint8)
    read = list(decode_entries(buffer, laid.entries, ("value", "entry")))
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


def test_what_only_looks_like_a_message_is_none() -> None:
    """The only one that is found in bulk lies inside of a value."""
    laid = Laid()
    value = b"before" + TRAPS[0] + b"after"
    laid.add(framed(b"\x40\x05\x18" + bytes([len(value)]), value), num_messages_in_batch=1)
    assert [line["value"] for line in laid.decode()] == [value]


def test_many_properties_and_long_metadata_are_read() -> None:
    many = {f"name {n}": "x" * n for n in range(500)}
    laid = Laid()
    laid.add_batch([Message(b"1", properties=many), Message(b"2")], Compression.NONE)
    assert [line["properties"] for line in laid.decode()] == [list(many.items()), []]


@pytest.mark.parametrize("first", [b"", b"\x40\x01"])
def test_what_a_compaction_took_out_is_left_out(first: bytes) -> None:
    payload = framed(b"\x18\x01", b"a") + framed(first + b"\x18\x00\x20\x01") + framed(b"\x18\x00")
    laid = Laid()
    laid.add(payload, num_messages_in_batch=3)
    assert [(line["value"], line["batch_index"]) for line in laid.decode()] == [(b"a", 0), (b"", 2)]


def test_what_becomes_much_is_cut_by_what_it_becomes() -> None:
    laid = Laid()
    for _ in range(9):
        laid.add_batch([Message(bytes(1_000_000))], Compression.ZSTD)
    assert len(laid.data) < 10_000
    buffer = np.frombuffer(bytes(laid.data) + bytes(PADDING_BYTES), np.uint8)
    read = decode_entries(buffer, laid.entries, ("value",))
    assert [one.batch.num_rows for one in read] == [2, 2, 2, 2, 1]


# --- in pieces ------------------------------------------------------------------------------------


@settings(max_examples=150, deadline=None)
@given(batches(), st.sampled_from(Compression), st.integers(40, 400), st.integers(1, 9))
def test_a_large_entry_is_read_in_pieces_as_message_by_message(
    sent: list[Message], compression: Compression, size: int, most: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("eos.wire.decoding._pieces.PIECE_BYTES", size)
        patch.setattr("eos.wire.decoding._pieces.PIECE_MESSAGES", most)
        patch.setattr("eos.wire.decoding._pieces._MIN_BULK_MESSAGES", 2)
        patch.setattr("eos.wire.decoding._entry_decoder._MAX_BULK_BYTES", 0)
        patch.setattr("eos.wire.decoding._entry_decoder._MAX_CACHED_BYTES", size)
        laid = Laid()
        laid.add_batch(sent, compression)
        laid.add_batch([Message(b"last")], Compression.NONE)
        read = laid.decode()
        buffer = np.frombuffer(bytes(laid.data) + bytes(PADDING_BYTES), np.uint8)
        decoded = list(decode_entries(buffer, laid.entries, ("value",)))
    assert [line["value"] for line in read] == [message.value for message in sent] + [b"last"]
    assert [line["batch_index"] for line in read] == [*range(len(sent)), 0]
    assert max(one.batch.num_rows for one in decoded) <= most
    whole = [one.is_whole for one in decoded]
    assert whole.count(True) == 2
    assert whole[-2:] == [True, True]


def test_nothing_is_given_of_a_large_entry_whose_last_message_is_malformed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("eos.wire.decoding._pieces.PIECE_MESSAGES", 10)
    monkeypatch.setattr("eos.wire.decoding._entry_decoder._MAX_BULK_MESSAGES", 10)
    no_base64 = framed(b"\x12\x03abc\x18\x00\x30\x01")
    laid = Laid()
    laid.add_batch([Message(b"before")], Compression.NONE)
    laid.add(framed(b"\x18\x01", b"a") * 1000 + no_base64, num_messages_in_batch=1001)
    buffer = np.frombuffer(bytes(laid.data) + bytes(PADDING_BYTES), np.uint8)
    read = []
    with pytest.raises(ProtocolError, match=r"The entry 7:1:-1:-1 can't be read: .*base64"):
        read.extend(decode_entries(buffer, laid.entries, ("value", "key")))
    assert [one.batch["value"].to_pylist() for one in read] == [[b"before"]]


# --- entries --------------------------------------------------------------------------------------


def test_messages_outside_of_batches_are_rows_too() -> None:
    laid = Laid()
    laid.add(b"plain")
    laid.add(
        b"",
        partition_key="azE=",
        partition_key_b64_encoded=True,
        null_value=True,
        event_time=5,
        ordering_key=b"o",
        sequence_id=9,
        properties=(made.commands.KeyValue(key="a", value="b"),),
    )
    laid.add_batch([Message(b"batched")], Compression.LZ4)
    first, second, third = laid.decode()
    assert (first["value"], first["key"], first["batch_index"]) == (b"plain", None, -1)
    assert own([second]) == [
        row(DecodedMessage(None, b"k1", 5, (("a", "b"),), b"o", 9)),
    ]
    assert (third["value"], third["batch_index"]) == (b"batched", 0)


def test_what_an_entry_says_stands_with_each_of_its_messages() -> None:
    laid = Laid()
    (batch,) = encode_batches(rows_from_messages([Message(b"a"), Message(b"b")]))
    laid.add(
        bytes(batch.payload),
        num_messages_in_batch=2,
        publish_time=1700000000000,
        producer_name="writer",
        schema_version=b"\0\1",
    )
    names = ("ledger", "entry", "batch_index", "publish_time", "producer_name", "schema_version")
    assert [tuple(line[name] for name in names) for line in laid.decode()] == [
        (7, 0, 0, 1700000000000, "writer", b"\0\1"),
        (7, 0, 1, 1700000000000, "writer", b"\0\1"),
    ]


def test_only_the_columns_that_are_asked_for_are_made_in_their_order() -> None:
    laid = Laid()
    laid.add_batch([Message(b"a", key="k")], Compression.NONE)
    assert [list(line) for line in laid.decode(("key", "value"))] == [["key", "value"]]


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
def test_an_entry_that_cannot_be_read_is_an_error_behind_those_before_it(
    fields: dict[str, Any], complaint: str
) -> None:
    laid = Laid()
    laid.add_batch([Message(b"good")], Compression.NONE)
    laid.add(framed(b"\x18\x01", b"a"), **fields)
    buffer = np.frombuffer(bytes(laid.data) + bytes(PADDING_BYTES), np.uint8)
    read = []
    with pytest.raises(ProtocolError, match=complaint):
        read += decode_entries(buffer, laid.entries, ("value",))
    assert [(one.last_id.entry, one.batch.to_pydict()) for one in read] == [
        (0, {"value": [b"good"]})
    ]


@pytest.mark.parametrize("names", [[], ["value", "value"], ["vlaue"]])
def test_columns_that_are_none_are_refused(names: list[str]) -> None:
    with pytest.raises(ConfigurationError, match="Choose from value, key"):
        checked_columns(names)
