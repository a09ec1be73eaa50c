"""Frames: encoded ones follow the specification; received ones are bounded and validated."""

from __future__ import annotations

import struct
import time

import google_crc32c
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eos.errors import ProtocolError
from eos.wire import commands
from eos.wire.frames import (
    MAX_FRAME_BYTES,
    FrameDecoder,
    UnknownCommand,
    encode_frame,
    encode_send,
)

SAMPLES = [
    commands.Ping(),
    commands.Connected(server_version="4.2.4", protocol_version=21, max_message_size=5242880),
    commands.SendReceipt(
        producer_id=1,
        sequence_id=2**63,
        message_id=commands.MessageIdData(ledger=2**64 - 1, entry=7),
    ),
    commands.LookupResponse(request_id=3, broker_url="pulsar://b:6650", response=1),
    commands.NewTxnResponse(request_id=4, txnid_least=5, txnid_most=6),
    commands.EndTxnResponse(request_id=7, error=24, message="not found"),
    commands.AddPartitionToTxn(request_id=8, txnid_least=1, txnid_most=2, partitions=("a", "b")),
    commands.CloseProducer(producer_id=9, request_id=10),
]
STREAM = b"".join(encode_frame(sample) for sample in SAMPLES)


def test_a_stream_of_frames_is_decoded_to_its_commands():
    assert list(FrameDecoder().feed(STREAM)) == SAMPLES


@given(st.lists(st.integers(1, 40), min_size=1, max_size=40))
def test_frames_are_decoded_however_the_bytes_are_split(sizes):
    decoder, at, seen = FrameDecoder(), 0, []
    while at < len(STREAM):
        size = sizes[len(seen) % len(sizes)]
        seen += decoder.feed(STREAM[at : at + size])
        at += size
    assert seen == SAMPLES


def test_decoding_byte_by_byte_gives_the_same_commands():
    decoder = FrameDecoder()
    assert [c for n in range(len(STREAM)) for c in decoder.feed(STREAM[n : n + 1])] == SAMPLES


def swallow(data: bytes) -> None:
    """Decode; only a ProtocolError may be raised. Decoding byte by byte must give the same."""
    outcomes = []
    for step in (len(data) or 1, 1):
        decoder, seen = FrameDecoder(), []
        try:
            for at in range(0, len(data), step):
                for command in decoder.feed(data[at : at + step]):
                    seen.append(command)
        except ProtocolError as error:
            seen.append(str(error))
        outcomes.append(seen)
    assert outcomes[0] == outcomes[1]


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=300))
def test_random_bytes_raise_only_protocol_errors(data):
    swallow(data)
    swallow(struct.pack(">II", len(data) + 4, len(data)) + data)


@settings(max_examples=300, deadline=None)
@given(st.integers(0, len(STREAM) - 1), st.integers(0, 255), st.integers(0, len(STREAM)))
def test_a_changed_or_truncated_stream_raises_only_protocol_errors(at, byte, cut):
    data = bytearray(STREAM)
    data[at] = byte
    swallow(bytes(data))
    swallow(bytes(data[:cut]))


@pytest.mark.parametrize("total", [0, 4, MAX_FRAME_BYTES + 1, 2**32 - 1])
def test_a_frame_of_an_invalid_size_is_refused_before_it_is_buffered(total):
    with pytest.raises(ProtocolError, match=f"frame of {total}"):
        list(FrameDecoder().feed(struct.pack(">I", total)))


def test_the_decoder_buffers_at_most_one_frame_and_one_read():
    decoder = FrameDecoder(max_frame_bytes=1000)
    stream = (struct.pack(">II", 1000, 2) + b"\x08\x3a" + bytes(994)) * 20
    kept = []
    for at in range(0, len(stream), 300):
        list(decoder.feed(stream[at : at + 300]))
        kept.append(len(decoder._buffer))
    assert max(kept) < 1004 + 300
    assert kept[-1] == 0


def test_a_longest_frame_in_small_pieces_is_decoded_in_linear_time():
    """With quadratic work, a peer could consume a client's time."""
    body = commands.Error(request_id=1, error=1, message="x" * (MAX_FRAME_BYTES - 100))
    frame = encode_frame(body)
    decoder = FrameDecoder()
    started = time.process_time()
    seen = [c for n in range(0, len(frame), 16) for c in decoder.feed(frame[n : n + 16])]
    assert seen == [body]
    assert time.process_time() - started < 5


def test_other_fields_of_the_envelope_are_ignored():
    """A small frame must not create a large object, and irrelevant fields must not fail."""
    body = b"\x08\x12" + b"\x92\x01\x00" + b"\x3a\x00"  # PING, and an empty SEND_RECEIPT
    frame = struct.pack(">II", len(body) + 4, len(body)) + body
    assert list(FrameDecoder().feed(frame)) == [commands.Ping()]


@pytest.mark.parametrize(
    ("body", "problem"),
    [(b"\x92\x01\x00", "has no type"), (b"\x08\x12", "has no command")],
)
def test_an_envelope_without_type_or_command_is_refused(body, problem):
    frame = struct.pack(">II", len(body) + 4, len(body)) + body
    with pytest.raises(ProtocolError, match=problem):
        list(FrameDecoder().feed(frame))


def test_a_command_longer_than_its_frame_is_refused():
    with pytest.raises(ProtocolError, match="a command of"):
        list(FrameDecoder().feed(struct.pack(">II", 8, 100) + b"abcd"))


def test_an_unsupported_command_is_returned_as_unknown():
    body = b"\x08\x3a"  # type 58, END_TXN_ON_PARTITION
    frame = struct.pack(">II", len(body) + 4, len(body)) + body
    assert list(FrameDecoder().feed(frame)) == [UnknownCommand(58)]


def test_a_missing_required_field_is_refused():
    body = b"\x08\x07\x3a\x00"  # SEND_RECEIPT, empty
    frame = struct.pack(">II", len(body) + 4, len(body)) + body
    with pytest.raises(ProtocolError, match="producer_id"):
        list(FrameDecoder().feed(frame))


def test_a_send_frame_has_the_specified_layout_and_checksum():
    payload = b"payload"
    meta = commands.MessageMetadata(
        producer_name="p", sequence_id=1, publish_time=2, txnid_most=3, txnid_least=4
    )
    head = encode_send(commands.Send(producer_id=1, sequence_id=1), meta, payload)
    total, command_size = struct.unpack_from(">II", head)
    assert total == len(head) - 4 + len(payload)
    magic, checksum, meta_size = struct.unpack_from(">HII", head, 8 + command_size)
    covered = head[8 + command_size + 6 :]
    assert (magic, meta_size) == (0x0E01, len(covered) - 4)
    assert checksum == google_crc32c.value(covered + payload)
    assert commands.MessageMetadata.decode(covered[4:]) == meta
