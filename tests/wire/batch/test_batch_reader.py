"""The batch reader rejects malformed payloads, and raises only ProtocolError."""

from __future__ import annotations

import contextlib

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eos.errors import ProtocolError
from eos.wire.batch import DecodedMessage, Rows, decode_batch, encode_batches


def framed(metadata: bytes, value: bytes = b"") -> bytes:
    return len(metadata).to_bytes(4, "big") + metadata + value


SIZE_0 = b"\x18\x00"


@pytest.mark.parametrize(
    ("payload", "complaint"),
    [
        (b"", "truncated"),
        (b"\0\0\0", "truncated"),
        (framed(b""), "payload_size"),
        (framed(b"\x18\x02", b"a"), "truncated"),
        (framed(b"\x18\x01", b"ab"), "after the last"),
        (b"\xff\xff\xff\xff" + SIZE_0, "truncated"),
        (framed(b"\x18" + b"\xff" * 9 + b"\x01"), "negative"),
        (framed(b"\x18" + b"\xff" * 10), "64 bits"),
        (framed(b"\x18" + b"\xff" * 9 + b"\x02"), "64 bits"),
        (framed(b"\x18"), "truncated"),
        (framed(SIZE_0 + b"\x12\x05abc"), "truncated"),
        (framed(SIZE_0 + b"\x30\x01\x12\x03abc"), "base64"),
        (framed(SIZE_0 + b"\x30\x01\x12\x04ab\xff="), "base64"),
        (framed(SIZE_0 + b"\x0a\x03\x0a\x01a"), "no key or no value"),
        (framed(SIZE_0 + b"\x10\x01"), "field 2 has wire type 0"),
        (framed(SIZE_0 + b"\x00"), "field number 0"),
        (framed(SIZE_0 + b"\x53"), "wire type 3"),
        (framed(SIZE_0 + b"\x51abc"), "truncated"),
    ],
)
def test_malformed_batches_are_refused(payload: bytes, complaint: str) -> None:
    with pytest.raises(ProtocolError, match=complaint):
        decode_batch(payload, 1)


def test_fields_from_a_newer_protocol_are_skipped() -> None:
    unknown = b"\x50\x07" + b"\x5a\x02ab" + b"\x61" + bytes(8) + b"\x6d" + bytes(4)
    assert decode_batch(framed(unknown + SIZE_0), 1) == [DecodedMessage(b"")]


def test_a_null_value_is_not_an_empty_one() -> None:
    assert decode_batch(framed(SIZE_0 + b"\x48\x01"), 1) == [DecodedMessage(None)]


def test_a_key_that_is_not_text_is_read_as_bytes() -> None:
    assert decode_batch(framed(b"\x12\x01\xff" + SIZE_0), 1) == [DecodedMessage(b"", key=b"\xff")]


def test_what_is_not_utf8_in_a_property_is_replaced_as_in_java() -> None:
    (message,) = decode_batch(framed(SIZE_0 + b"\x0a\x09\x0a\x02a\xff\x12\x03\xfe\xe9b"), 1)
    assert message == DecodedMessage(b"", properties=(("a\ufffd", "\ufffd\ufffdb"),))


def test_a_message_removed_by_compaction_is_marked() -> None:
    (message,) = decode_batch(framed(SIZE_0 + b"\x20\x01"), 1)
    assert message.is_compacted_out


def test_fewer_or_more_messages_than_announced_are_an_error() -> None:
    (batch,) = encode_batches(Rows(pa.array([b"a", b"b"])))
    for count in (1, 3):
        with pytest.raises(ProtocolError):
            decode_batch(batch.payload, count)


@settings(max_examples=300)
@given(st.binary(max_size=80), st.integers(0, 3))
def test_random_bytes_end_in_messages_or_a_protocol_error(payload: bytes, count: int) -> None:
    with contextlib.suppress(ProtocolError):
        assert len(decode_batch(payload, count)) == count


@settings(max_examples=300)
@given(st.integers(0), st.integers(0, 255))
def test_a_corrupt_batch_ends_in_messages_or_a_protocol_error(place: int, byte: int) -> None:
    maps = pa.array([[("a", "b")], None], pa.map_(pa.string(), pa.string()))
    rows = Rows(pa.array([b"one", b"two"]), pa.array([b"k", None]), pa.array([5, 6]), maps)
    (batch,) = encode_batches(rows)
    damaged = bytearray(batch.payload)
    damaged[place % len(damaged)] = byte
    with contextlib.suppress(ProtocolError):
        assert len(decode_batch(bytes(damaged), 2)) == 2
