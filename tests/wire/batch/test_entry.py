"""Entries from the broker: their content, and the validation of all of it."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eos.errors import DecryptionFailed, ProtocolError
from eos.ids import MessageId, TxnId
from eos.wire import commands
from eos.wire.batch import (
    Compression,
    DecodedMessage,
    Entry,
    Message,
    _entry,
    encode_batches,
    rows_from_messages,
)
from eos.wire.batch._compression import MAX_UNCOMPRESSED_BYTES, decompress
from eos.wire.batch._entry import MAX_MESSAGES, EntryFigures
from eos.wire.checksum import crc32c, entry_checksum
from eos.wire.frames import Delivery, FrameDecoder
from tests.wire.entries import body, frame, metadata

TXN: Any = {"txnid_most": 3, "txnid_least": 4}


def delivered(content: bytes) -> Delivery:
    (delivery,) = FrameDecoder().feed(frame(5, 9, content))
    assert isinstance(delivery, Delivery)
    assert delivery.command.consumer_id == 5
    return delivery


def entry_of(content: bytes) -> Entry:
    return Entry.of(delivered(content))


def batch_body(compression: Compression = Compression.NONE, /, **fields: object) -> bytes:
    messages = [Message(b"v" * 300, key="k", properties={"a": "b"}), Message(b"w" * 300, key="l")]
    (batch,) = encode_batches(rows_from_messages(messages), compression=compression)
    told: dict[str, object] = {
        "num_messages_in_batch": 2,
        "compression": int(batch.compression),
        "uncompressed_size": batch.uncompressed_bytes,
        **TXN,
    }
    return body(metadata(**(told | fields)), bytes(batch.payload))


def test_an_entry_has_its_id_and_its_transaction():
    entry = entry_of(body(metadata(**TXN), b"value"))
    assert (entry.id, entry.txn) == (MessageId(7, 9), TxnId(3, 4))
    assert entry_of(body(metadata(), b"value")).txn is None


def test_broker_entry_metadata_are_skipped():
    plain, prefixed = body(metadata(), b"value"), body(metadata(), b"value", b"\x08\x01\x10\x02")
    assert entry_of(prefixed) == entry_of(plain)


def test_a_message_outside_of_a_batch_has_its_fields_in_the_metadata():
    pairs = (commands.KeyValue(key="a", value="b"),)
    entry = entry_of(
        body(metadata(partition_key=b"k", event_time=5, ordering_key=b"o", properties=pairs), b"v")
    )
    assert entry.properties == entry.first_properties == {"a": "b"}
    assert entry.messages() == [DecodedMessage(b"v", "k", 5, (("a", "b"),), b"o", 1)]
    assert entry.figures().checksum == entry_checksum(b"v", b"k")


def test_keys_in_base64_count_as_the_text_that_readers_see():
    entry = entry_of(body(metadata(partition_key=b"AAE=", partition_key_b64_encoded=True), b"v"))
    assert entry.messages()[0].key == b"\x00\x01"
    assert entry.figures().checksum == entry_checksum(b"v", b"AAE=")
    assert entry.figures().value_and_key_bytes == 5


def test_a_null_value_is_none():
    entry = entry_of(body(metadata(null_value=True), b""))
    assert entry.messages()[0].value is None
    assert entry.figures().value_and_key_bytes == 0


def test_the_repr_does_not_show_rows_or_properties():
    pairs = (commands.KeyValue(key="secret", value="secret"),)
    entry = entry_of(body(metadata(properties=pairs, partition_key=b"secret"), b"secret"))
    assert "secret" not in repr(entry)


@pytest.mark.parametrize("compression", Compression)
def test_the_messages_of_a_batch_are_read_back(compression):
    entry = entry_of(batch_body(compression))
    assert entry.metadata.compression == compression
    assert [message.key for message in entry.messages()] == ["k", "l"]
    assert [message.value for message in entry.messages()] == [b"v" * 300, b"w" * 300]
    assert (entry.first_properties, entry.properties) == ({"a": "b"}, {})


@pytest.mark.parametrize("compression", [one for one in Compression if one])
@pytest.mark.parametrize("difference", [-1, 1, 100])
def test_a_wrong_uncompressed_size_is_refused(compression, difference):
    """After a shorter result, Arrow's buffer has arbitrary memory."""
    size = entry_of(batch_body(compression)).metadata.uncompressed_size + difference
    entry = entry_of(batch_body(compression, uncompressed_size=size))
    with pytest.raises(ProtocolError, match=f"not {size} bytes compressed by {compression.name}"):
        entry.messages()


def test_a_zlib_stream_may_be_flushed_instead_of_ended():
    """As the Java client's; see ``tests/client/test_chunks.py``."""
    deflater = zlib.compressobj()
    flushed = deflater.compress(b"value" * 1000) + deflater.flush(zlib.Z_SYNC_FLUSH)
    assert decompress(flushed, Compression.ZLIB, 5000) == b"value" * 1000
    with pytest.raises(ProtocolError, match="not 5000 bytes"):
        decompress(flushed[:-1], Compression.ZLIB, 5000)


@pytest.mark.parametrize("compression", [one for one in Compression if one])
def test_a_truncated_compressed_payload_is_refused(compression):
    entry = entry_of(batch_body(compression))
    cut, size = entry.payload[:-1], entry.metadata.uncompressed_size
    with pytest.raises(ProtocolError, match=f"not {size} bytes compressed by {compression.name}"):
        decompress(cut, compression, size)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"compression": 5}, "compression: 5"),
        ({"compression": 1, "uncompressed_size": MAX_UNCOMPRESSED_BYTES + 1}, "uncompressed"),
        ({"num_messages_in_batch": 3}, "truncated"),
        ({"num_messages_in_batch": 1}, "after the last message"),
        ({"num_messages_in_batch": 2**31 - 1}, "truncated"),
        ({"num_chunks_from_msg": 2}, "chunk"),
    ],
    ids=str,
)
def test_a_payload_that_contradicts_its_metadata_is_refused(fields, problem):
    entry = entry_of(batch_body(**fields))
    with pytest.raises(ProtocolError, match=problem):
        entry.figures()


def test_an_encrypted_entry_has_the_figures_of_its_stored_bytes():
    keys = (commands.EncryptionKeys(key="k"),)
    entry = entry_of(batch_body(encryption_keys=keys, num_messages_in_batch=3))
    with pytest.raises(DecryptionFailed, match="encrypted for 'k'"):
        entry.messages()
    assert entry.figures() == EntryFigures(3, len(entry.payload), crc32c(entry.payload))


@pytest.mark.parametrize("count", [0, -1, -(2**31)])
def test_an_entry_that_claims_no_messages_counts_as_one_and_is_not_read(count):
    entry = entry_of(batch_body(num_messages_in_batch=count))
    assert entry.num_messages == 1
    for look in (Entry.messages, Entry.figures, lambda entry: entry.first_properties):
        with pytest.raises(ProtocolError, match=f"claims {count} messages"):
            look(entry)


def test_an_entry_with_too_many_messages_is_counted_and_not_read_as_objects():
    count = MAX_MESSAGES + 1
    payload = b"\0\0\0\2\x18\0" * count
    fields = {"compression": int(Compression.ZLIB), "uncompressed_size": len(payload)}
    meta = metadata(num_messages_in_batch=count, **fields)
    entry = entry_of(body(meta, zlib.compress(payload)))
    with pytest.raises(ProtocolError, match=f"The entry .* {count} messages") as caught:
        entry.messages()
    assert "reader" in caught.value.hint
    assert entry.figures().num_messages == count


def test_an_entry_with_too_many_properties_is_counted_and_not_read_as_objects(
    monkeypatch,
):
    monkeypatch.setattr(_entry, "MAX_PROPERTIES", 0)
    entry = entry_of(batch_body())
    with pytest.raises(ProtocolError, match="more properties") as caught:
        entry.messages()
    assert "reader" in caught.value.hint
    assert entry.figures().num_messages == 2


WHOLE = body(metadata(), b"value")


def test_an_error_does_not_hold_the_unreadable_entry():
    entry = entry_of(body(metadata(num_messages_in_batch=1), bytes(64)))
    for read in (entry.messages, entry.figures, lambda: list(entry.iter_messages())):
        with pytest.raises(ProtocolError, match="payload_size") as caught:
            read()
        assert caught.value.__context__ is None


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "truncated"),
        (WHOLE[:5], "claims .* bytes of metadata"),
        (WHOLE[:7], "wrong checksum"),
        (WHOLE[:-1], "wrong checksum"),
        (WHOLE[2:], "claims .* bytes of metadata"),
        (b"\x0e\x02\xff\xff\xff\xff" + WHOLE, "truncated"),
        (b"\x0e\x02\x00\x00\x00\x01" + WHOLE, "claims .* bytes of metadata"),
    ],
)
def test_a_corrupt_entry_is_refused_and_the_connection_stays_in_sync(content, problem):
    stream = frame(5, 9, content) + frame(5, 10, WHOLE)
    damaged, whole = FrameDecoder().feed(stream)
    with pytest.raises(ProtocolError, match=problem):
        Entry.of(damaged)
    assert Entry.of(whole).id == MessageId(7, 10)


def test_an_entry_without_a_checksum_is_read():
    assert WHOLE[:2] == b"\x0e\x01"
    assert entry_of(WHOLE[6:]) == entry_of(WHOLE)
    assert entry_of(b"\x0e\x02\x00\x00\x00\x01x" + WHOLE[6:]) == entry_of(WHOLE)


def test_metadata_that_is_longer_than_its_entry_is_refused():
    covered = struct.pack(">I", 100) + b"x"
    content = struct.pack(">HI", 0x0E01, entry_checksum(covered, b"")) + covered
    with pytest.raises(ProtocolError, match="claims 100 bytes of metadata"):
        entry_of(content)


STREAM = frame(5, 9, body(metadata(**TXN), b"value", b"\x08\x01")) + b"".join(
    frame(5, 10 + number, batch_body(compression)) for number, compression in enumerate(Compression)
)
COUNT = 1 + len(Compression)


def read_all(data: bytes, step: int) -> list[object]:
    """Everything that a reader would read from ``data``; only ProtocolError may be raised."""
    decoder, seen = FrameDecoder(), []
    try:
        for at in range(0, len(data), step):
            for command in decoder.feed(data[at : at + step]):
                if isinstance(command, Delivery):
                    entry = Entry.of(command)
                    seen.append((entry, entry.first_properties, entry.messages(), entry.figures()))
    except ProtocolError as error:
        seen.append(str(error))
    return seen


def test_a_stream_of_entries_is_decoded_however_it_is_split():
    whole = read_all(STREAM, len(STREAM))
    assert len(whole) == COUNT
    assert read_all(STREAM, 1) == read_all(STREAM, 7) == whole


@settings(max_examples=300, deadline=None)
@given(st.integers(0, len(STREAM) * 8 - 1))
def test_a_flipped_bit_raises_only_protocol_errors(bit):
    data = bytearray(STREAM)
    data[bit // 8] ^= 1 << bit % 8
    assert read_all(bytes(data), len(data)) == read_all(bytes(data), 1)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200), st.booleans())
def test_an_entry_of_random_bytes_raises_only_protocol_errors(data, is_checked):
    if is_checked:  # after a valid checksum
        data = struct.pack(">HI", 0x0E01, entry_checksum(data, b"")) + data
    read_all(frame(5, 9, data), 1)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200), st.integers(-1, 6), st.integers(-1, 2000), st.integers(-1, 5))
def test_random_payloads_raise_only_protocol_errors(payload, compression, size, count):
    meta = metadata(
        compression=compression,
        uncompressed_size=max(0, size),
        num_messages_in_batch=None if count < 0 else count,
    )
    read_all(frame(5, 9, body(meta, payload)), 10_000)


def test_an_endless_compressed_payload_takes_no_more_memory_than_it_claims():
    before = pa.total_allocated_bytes()
    bomb = entry_of(batch_body(Compression.ZLIB)).payload
    with pytest.raises(ProtocolError):
        decompress(bomb, Compression.ZLIB, 10)
    with pytest.raises(ProtocolError):
        decompress(b"\x28", Compression.ZSTD, 2**32 - 1)
    assert pa.total_allocated_bytes() == before
