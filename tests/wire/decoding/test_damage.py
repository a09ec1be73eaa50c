"""Corrupt batches: reading in bulk and message by message give the same rows, or an error."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eos.errors import ProtocolError
from eos.wire.batch import Message, encode_batches, rows_from_messages
from tests.wire.decoding.entry_buffers import EntryBuffer, batches, decoded, own, plain

ALIKE = (
    Message(b"value"),
    Message(b"value" * 30, key="key", event_time_ms=300),
    Message(b"", key="k" * 7, properties={"p": "q"}, ordering_key=b"o"),
    Message(None, key=b"binary"),
    Message(b"longer head", key="k" * 90),
)


def ends_as_message_by_message(entries: EntryBuffer) -> None:
    """The same rows, or the same kind of error."""
    try:
        wanted = plain(entries)
    except ProtocolError:
        with pytest.raises(ProtocolError):
            entries.decode()
        return
    read = entries.decode()
    if not any(message.is_compacted_out for message in decoded(entries)):
        assert own(read) == wanted


@settings(max_examples=400, deadline=None)
@given(batches(), st.data())
def test_corrupt_batches_give_the_result_of_reading_message_by_message(
    messages: list[Message], data: st.DataObject
) -> None:
    (batch,) = encode_batches(rows_from_messages(messages))
    payload = bytearray(bytes(batch.payload))
    for _ in range(data.draw(st.integers(1, 3))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    entries = EntryBuffer()
    count = batch.num_messages + data.draw(st.sampled_from((0, 0, 0, -1, 1, 2**30)))
    entries.add(bytes(payload), num_messages_in_batch=max(1, count))
    ends_as_message_by_message(entries)


@settings(max_examples=600, deadline=None)
@given(st.sampled_from(ALIKE), st.lists(st.integers(1, 12), min_size=1, max_size=4), st.data())
def test_messages_of_equal_length_keep_their_own_headers(
    message: Message, counts: list[int], data: st.DataObject
) -> None:
    payloads = [
        bytearray(bytes(batch.payload))
        for count in counts
        for batch in encode_batches(rows_from_messages([message] * count))
    ]
    for _ in range(data.draw(st.integers(0, 2))):
        payload = data.draw(st.sampled_from(payloads))
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    entries = EntryBuffer()
    for payload, count in zip(payloads, counts, strict=True):
        entries.add(bytes(payload), num_messages_in_batch=count)
    ends_as_message_by_message(entries)


@pytest.mark.parametrize("size", [4, 6, 11])
@pytest.mark.parametrize("count", [1, 3])
def test_equal_messages_that_end_outside_of_the_payload_are_an_error(size: int, count: int) -> None:
    entries = EntryBuffer()
    entries.add((b"\0\0\0\2\x18" + bytes([size]) + b"12345") * count, num_messages_in_batch=count)
    with pytest.raises(ProtocolError):
        entries.decode()


def test_bytes_between_equal_messages_of_a_second_entry_are_an_error() -> None:
    message = b"\0\0\0\2\x18\x05value"
    entries = EntryBuffer()
    entries.add(message * 3, num_messages_in_batch=3)
    entries.add((message + b"!") * 3, num_messages_in_batch=3)
    with pytest.raises(ProtocolError):
        entries.decode()


@pytest.mark.parametrize("message", [*ALIKE, Message(b"longer than 2^16" * 5000)])
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("head_size", [None, 1], ids=["as it is", "behind the end"])
def test_each_corrupt_byte_gives_the_result_of_reading_message_by_message(
    message: Message, count: int, head_size: int | None
) -> None:
    """One byte, and another one that makes the first message's header exceed the buffer."""
    (batch,) = encode_batches(rows_from_messages([message] * count))
    payload = bytearray(bytes(batch.payload))
    if head_size is not None:
        payload[2] = head_size
    for place in range(min(len(payload), 130)):
        for byte in (0, 1, 2, 4, 0x18, 0x7F, 0x80, 0xFF):
            entries = EntryBuffer()
            damaged = payload[:place] + bytes([byte]) + payload[place + 1 :]
            entries.add(bytes(damaged), num_messages_in_batch=count)
            ends_as_message_by_message(entries)
