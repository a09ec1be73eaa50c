"""The receive buffer returns the same entries and commands however the bytes are split."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eos.errors import ProtocolError
from eos.wire import commands, receive_buffer
from eos.wire.decoding import PADDING_BYTES
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
@given(st.lists(st.binary(max_size=200), max_size=10), st.lists(st.integers(1, 300), max_size=50))
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
def test_a_malformed_frame_is_an_error_after_earlier_frames(data: bytes, complaint: str) -> None:
    box = ReceiveBuffer()
    found, _ = feed(box, entry(1, b"good") + data)
    assert found == [(1, b"good")]
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
