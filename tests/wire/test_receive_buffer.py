"""The receive buffer returns the same entries and commands however the bytes are split."""

from __future__ import annotations

import struct
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eos.errors import ProtocolError
from eos.wire import commands, receive_buffer
from eos.wire.decoding import PADDING_BYTES, _delivered_entry
from eos.wire.frames import encode_frame
from eos.wire.messages import WireMessage
from eos.wire.receive_buffer import ReceiveBuffer
from tests.wire.entries import body, frame, metadata

PING = encode_frame(commands.Ping())


def entry(number: int, payload: bytes, broker_metadata: bytes = b"") -> bytes:
    return frame(1, number, body(metadata(), payload, broker_metadata))


def feed(box: ReceiveBuffer, data: bytes) -> tuple[list[tuple[int, bytes]], list[WireMessage]]:
    """Fill in ``data`` in chunks that fit, and return number and payload of each entry."""
    found: list[tuple[int, bytes]] = []
    others: list[WireMessage] = []
    while data:
        room = box.free_space()
        assert len(room)
        count = min(len(room), len(data))
        room[:count] = data[:count]
        data = data[count:]
        box.fill(count)
        entries, received = box.take()
        found += [(one.id.entry, box.buffer[one.start : one.end].tobytes()) for one in entries]
        others += received
    return found, others


@settings(max_examples=200, deadline=None)
@given(st.lists(st.binary(max_size=200), max_size=40), st.lists(st.integers(1, 300), max_size=50))
def test_frames_are_parsed_however_bytes_are_split(payloads: list[bytes], cuts: list[int]) -> None:
    data = b"".join(
        entry(number, payload, b"meta" * (number % 2)) + PING * (number % 3 == 0)
        for number, payload in enumerate(payloads)
    )
    box = ReceiveBuffer()
    found: list[tuple[int, bytes]] = []
    pings = 0
    for size in [*cuts, len(data)]:
        entries, others = feed(box, data[:size])
        data = data[size:]
        found += entries
        pings += len(others)
    assert found == list(enumerate(payloads))
    assert pings == len(range(0, len(payloads), 3))
    assert box.pending_bytes == 0


def test_a_frame_longer_than_the_buffer_enlarges_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(receive_buffer, "BUFFER_BYTES", 1000)
    box = ReceiveBuffer()
    box.set_max_message_bytes(100_000)
    small, large = b"s" * 300, b"l" * 90_000
    sent = [entry(n, large if n % 5 == 3 else small) for n in range(12)]
    found, _ = feed(box, b"".join(sent))
    assert [payload for _, payload in found] == [large if n % 5 == 3 else small for n in range(12)]
    assert len(box.buffer) < 1_200_000


def test_eight_bytes_after_an_entry_stay_readable() -> None:
    box = ReceiveBuffer()
    room = box.free_space()
    data = entry(1, b"x")
    room[: len(data)] = data
    box.fill(len(data))
    ((one,), _) = box.take()
    assert one.end + PADDING_BYTES <= len(box.buffer)
    assert len(room) + PADDING_BYTES == len(box.buffer)


UINT64 = st.integers(0, 2**64 - 1) | st.integers(0, 300)
INT32 = st.integers(-(2**31), 2**31 - 1) | st.integers(-1, 300)
IDS = st.builds(
    commands.MessageIdData,
    ledger=UINT64,
    entry=UINT64,
    partition=INT32,
    batch_index=INT32,
    ack_set=st.just(()) | st.lists(st.integers(0, 2**63 - 1), min_size=1).map(tuple),
)
DELIVERIES = st.builds(
    commands.Deliver,
    consumer_id=UINT64,
    message_id=IDS,
    redelivery_count=st.integers(0, 300),
    ack_set=st.just(()) | st.lists(st.integers(0, 2**63 - 1), min_size=1).map(tuple),
    consumer_epoch=st.none() | UINT64,
)
BODIES = st.builds(
    body,
    st.builds(metadata, partition_key=st.none() | st.binary(), num_messages_in_batch=st.none()),
    st.binary(max_size=40),
    st.just(b"") | st.binary(max_size=40),
)


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    """Frames of a broker, some of which are odd: unknown fields, another type, no checksum, damaged
    bytes, other commands between them."""
    one = st.builds(delivered, DELIVERIES, BODIES) | st.builds(entry, UINT64, st.just(b"payload"))
    data = bytearray()
    for whole in draw(st.lists(one | st.just(PING), min_size=13, max_size=40)):
        odd = bytearray(whole)
        match draw(st.integers(0, 40)):
            case 0:
                odd[draw(st.integers(4, len(odd) - 1))] = draw(st.integers(0, 255))
            case 1:  # an unknown field after the command
                (size,) = struct.unpack_from(">I", odd, 4)
                odd[8 + size : 8 + size] = b"\xf8\x3f\x01"
                struct.pack_into(">II", odd, 0, len(odd) - 4, size + 3)
            case 2 if odd != PING:  # without a checksum
                (size,) = struct.unpack_from(">I", odd, 4)
                if odd[8 + size : 10 + size] == b"\x0e\x01":
                    del odd[8 + size : 14 + size]
                    struct.pack_into(">I", odd, 0, len(odd) - 4)
        data += odd
    return bytes(data)


def delivered(command: commands.Deliver, content: bytes) -> bytes:
    """A frame of ``command`` with ``content`` after it."""
    simple = encode_frame(command)
    return struct.pack(">I", len(simple) - 4 + len(content)) + simple[4:] + content


def taken(data: bytes, least_at_once: int) -> tuple[list[object], str | None]:
    """The entries and commands in ``data``, and the error after them."""
    box, found = ReceiveBuffer(), list[object]()
    with patch.object(_delivered_entry, "_LEAST_AT_ONCE", least_at_once):
        room = box.free_space()
        room[: len(data)] = data
        box.fill(len(data))
        try:
            while box.pending_bytes:
                entries, others = box.take()
                found += [
                    (one.id, one.metadata, bytes(box.buffer[one.start : one.end]))
                    for one in entries
                ]
                found += others
                if not entries and not others:
                    break
        except ProtocolError as error:
            return found, error.message
    return found, None


@settings(max_examples=150, deadline=None)
@given(streams())
def test_many_frames_are_as_each_by_itself(data: bytes) -> None:
    """One alone is parsed by the protobuf library."""
    assert taken(data, 1) == taken(data, 10**9)


def test_frames_as_brokers_write_them_are_parsed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the partition and batch index that are missing in ten bytes each."""
    monkeypatch.setattr(ReceiveBuffer, "_take_one", None)
    sent = [b"%d" % number for number in range(50)]
    data = [entry(number, one, b"meta" * (number % 2)) for number, one in enumerate(sent)]
    assert feed(ReceiveBuffer(), b"".join(data))[0] == list(enumerate(sent))


DAMAGED = bytearray(entry(2, b"payload"))
DAMAGED[-1] ^= 1


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (bytes(DAMAGED), "7:2:-1:-1 can't be read: An entry has a wrong checksum"),
        (frame(1, 2, b""), "truncated"),
        (frame(1, 2, b"\x0e\x02\xff\xff\xff\xff" + bytes(20)), "truncated"),
        (frame(1, 2, struct.pack(">HI", 0x0E01, 0) + bytes(3)), "wrong checksum|truncated"),
        (struct.pack(">I", 2**31), "A frame of 2147483648 bytes"),
        (struct.pack(">I", 3), "A frame of 3 bytes"),
        (struct.pack(">II", 8, 100) + bytes(4), "a command of 100"),
    ],
)
@pytest.mark.parametrize("count", [1, 20])
def test_a_malformed_frame_is_an_error_after_earlier_frames(
    data: bytes, complaint: str, count: int
) -> None:
    box = ReceiveBuffer()
    found, _ = feed(box, b"".join(entry(number, b"good") for number in range(count)) + data)
    assert found == [(number, b"good") for number in range(count)]
    for _ in range(2):
        with pytest.raises(ProtocolError, match=complaint):
            box.take()


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_corrupt_bytes_raise_only_protocol_errors(data: st.DataObject) -> None:
    sent = bytearray(entry(1, b"one") + PING + entry(2, b"two", b"meta"))
    for _ in range(data.draw(st.integers(1, 4))):
        sent[data.draw(st.integers(0, len(sent) - 1))] = data.draw(st.integers(0, 255))
    try:
        found, _ = feed(ReceiveBuffer(), bytes(sent))
    except ProtocolError:
        return
    assert all(payload in (b"one", b"two") for _, payload in found)
