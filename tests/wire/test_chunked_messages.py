"""Messages in chunks, put together from any place on, with repeated and missing chunks."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable, Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eos.errors import ProtocolError
from eos.ids import MessageId
from eos.wire import _chunks as chunks
from eos.wire._chunks import ChunkBuffer, MissingChunks
from eos.wire.batch import Entry
from eos.wire.commands import MessageMetadata
from eos.wire.decoding import PADDING_BYTES, DeliveredEntry, TopicDecoder
from eos.wire.opened_entries import EntryOpener, NoMessage, ReadableEntry


def chunk(
    number: int, of: int, at: int, *, uuid: str = "a", payload: bytes = b"", producer: str = "p"
) -> Entry:
    """A chunk; a message that is not in chunks is number 0 of 1."""
    metadata = MessageMetadata(
        producer_name=producer,
        sequence_id=0,
        publish_time=at,
        num_chunks_from_msg=of if of > 1 else None,
        chunk_id=number if of > 1 else None,
        uuid=uuid if of > 1 else None,
    )
    return Entry(MessageId(1, at), metadata, payload or f"{uuid}{number}".encode())


def read(
    stored: list[Entry], start: int = 0, end: int | None = None, calls: int = 3
) -> list[tuple[int, bytes]]:
    """Entry numbers and values that a decoder returns of ``stored[start:end]``."""

    def earlier(one: Entry) -> Iterator[Iterable[Entry]]:
        place = stored.index(one)
        yield stored[max(0, place - 2) : place]
        yield stored[:place]

    decoder = TopicDecoder(("entry", "value"), None, earlier)
    rows = []
    wanted = stored[start:end]
    for first in range(0, len(wanted), calls):
        data, delivered = bytearray(), []
        for one in wanted[first : first + calls]:
            begin = len(data)
            data += one.payload
            metadata = one.metadata.to_protobuf()
            delivered.append(DeliveredEntry(one.id, metadata, begin, len(data)))
        buffer = np.frombuffer(bytes(data) + bytes(PADDING_BYTES), np.uint8)
        seen = []
        for decoded in decoder(buffer, delivered):
            seen.append(decoded.last_id)
            rows += [(row["entry"], row["value"]) for row in decoded.batch.to_pylist()]
        assert seen[-1] == delivered[-1].id  # a reader waits until it has passed each entry
    return rows


@st.composite
def topics(draw: st.DrawFn) -> tuple[list[Entry], list[tuple[int, bytes]]]:
    """Entries of some producers, and the messages that they contain."""
    queues: list[list[tuple[int, int, str]]] = []
    for number in range(draw(st.integers(1, 4))):
        queue: list[tuple[int, int, str]] = []
        for message in range(draw(st.integers(1, 3))):
            of = draw(st.integers(1, 4))
            parts = list(range(of))
            if of > 1 and draw(st.booleans()):  # sent again from some chunk on
                again = draw(st.integers(1, of - 1))
                upto = draw(st.integers(again, of - 1))
                parts = [*range(upto + 1), *range(again, of)]
            queue += [(part, of, f"{number}-{message}-") for part in parts]
        queues.append(queue)
    stored: list[Entry] = []
    while any(queues):
        queue = draw(st.sampled_from([one for one in queues if one]))
        number, of, uuid = queue.pop(0)
        stored.append(chunk(number, of, len(stored), uuid=uuid))
    expected = []
    done = set()
    for one in stored:
        of = one.metadata.num_chunks_from_msg or 1
        uuid = one.metadata.uuid
        if of == 1:
            expected.append((one.id.entry, one.payload))
        elif one.metadata.chunk_id == of - 1 and uuid not in done:
            done.add(uuid)
            value = b"".join(f"{uuid}{number}".encode() for number in range(of))
            expected.append((one.id.entry, value))
    return stored, expected


@settings(max_examples=300)
@given(topic=topics(), data=st.data())
def test_any_cut_of_a_topic_has_the_messages_that_end_in_it(
    topic: tuple[list[Entry], list[tuple[int, bytes]]], data: st.DataObject
) -> None:
    stored, expected = topic
    cuts = sorted(data.draw(st.sets(st.integers(0, len(stored)), max_size=4)) | {0, len(stored)})
    seen = []
    for start, end in itertools.pairwise(cuts):
        seen += read(stored, start, end, calls=data.draw(st.integers(1, 5)))
    assert seen == expected


def test_an_end_that_was_sent_again_is_ignored_without_a_look_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    opener = EntryOpener(None, lambda _: pytest.fail("it looked back"))
    first = opener.open(chunk(0, 2, 0))
    whole = opener.open(chunk(1, 2, 1))
    assert isinstance(whole, ReadableEntry)
    again = opener.open(chunk(1, 2, 2))
    assert (first, again) == (NoMessage.INCOMPLETE, NoMessage.LEFT_OUT)
    assert not caplog.text


def test_a_message_without_its_first_chunk_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    stored = [chunk(1, 3, 0), chunk(2, 3, 1), chunk(0, 1, 2, payload=b"plain")]
    with caplog.at_level(logging.WARNING):
        assert read(stored) == [(2, b"plain")]
    assert caplog.text.count("earlier chunks are not in the topic") == 1


def test_a_message_with_a_gap_is_left_out() -> None:
    assert read([chunk(0, 3, 0), chunk(2, 3, 1), chunk(0, 1, 2, payload=b"plain")]) == [
        (2, b"plain")
    ]


def test_a_producer_that_begins_again_may_use_the_same_name() -> None:
    stored = [chunk(0, 2, 0), chunk(1, 2, 1), chunk(0, 2, 2), chunk(1, 2, 3)]
    assert read(stored) == [(1, b"a0a1"), (3, b"a0a1")]


def test_chunks_of_two_producers_with_one_uuid_are_two_messages() -> None:
    stored = [
        chunk(0, 2, 0, payload=b"x"),
        chunk(0, 2, 1, producer="q", payload=b"y"),
        chunk(1, 2, 2, payload=b"x"),
        chunk(1, 2, 3, producer="q", payload=b"y"),
    ]
    assert read(stored) == [(2, b"xx"), (3, b"yy")]


def test_the_oldest_incomplete_message_is_dropped_from_memory(
    caplog: pytest.LogCaptureFixture,
) -> None:
    buffer = ChunkBuffer()
    for number in range(chunks.MAX_INCOMPLETE + 1):
        buffer.add(chunk(0, 2, number, uuid=f"u{number}"))
    assert "began to send at (1, 0) is not complete" in caplog.text
    assert len(buffer) == chunks.MAX_INCOMPLETE
    with pytest.raises(MissingChunks):
        buffer.add(chunk(1, 2, 999, uuid="u0"))


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "MAX_INCOMPLETE_BYTES", 10_000)
    buffer = ChunkBuffer()
    for number in range(90):
        buffer.add(chunk(0, 2, number, uuid=f"u{number}", payload=b"x" * 1000))
    assert len(buffer) < 10
    monkeypatch.setattr(chunks, "MAX_UNCOMPRESSED_BYTES", 5000)
    long = [chunk(number, 100, number, uuid="long", payload=b"x" * 1000) for number in range(10)]
    with pytest.raises(ProtocolError, match="a message of more than"):
        buffer.add_all(long)


# --- hostile chunks ---------------------------------------------------------------------------

ANY_NUMBER = st.one_of(st.integers(-2, 5), st.sampled_from([-(2**31), 2**31 - 1]))


@settings(max_examples=300)
@given(
    chunks_sent=st.lists(
        st.tuples(
            st.sampled_from("pq"),
            st.sampled_from(["a", "b", "", "\0é"]),
            st.none() | ANY_NUMBER,
            st.none() | ANY_NUMBER,
            st.binary(max_size=8),
        ),
        min_size=1,
        max_size=25,
    ),
    calls=st.integers(1, 5),
)
def test_any_numbers_give_messages_of_chunks_in_order(
    chunks_sent: list[tuple[str, str, int | None, int | None, bytes]], calls: int
) -> None:
    stored = []
    for at, (producer, name, number, of, payload) in enumerate(chunks_sent):
        metadata = MessageMetadata(
            producer_name=producer,
            sequence_id=0,
            publish_time=at,
            num_chunks_from_msg=of,
            chunk_id=number,
            uuid=name,
        )
        stored.append(Entry(MessageId(1, at), metadata, payload))
    for at, value in read(stored, calls=calls):
        last = stored[at].metadata
        if (last.num_chunks_from_msg or 1) <= 1:
            assert value == stored[at].payload
            continue
        # Made of its producer's chunks 0, 1 ... of this message, in order.
        parts, wanted = [], last.num_chunks_from_msg
        for one in stored[: at + 1]:
            same = (one.metadata.producer_name, one.metadata.uuid) == (
                last.producer_name,
                last.uuid,
            )
            if same and (one.metadata.num_chunks_from_msg or 1) > 1:
                number = one.metadata.chunk_id or 0
                if number == 0:
                    parts = [one.payload]
                elif number == len(parts):
                    parts.append(one.payload)
        assert wanted is not None
        assert value == b"".join(parts[:wanted])
