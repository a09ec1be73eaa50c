"""Sends messages in chunks, as Java's producers do with large ones.

Of the same message all chunks have the same sequence id; a producer that has lost its connection
sends again what was not acknowledged.
"""

from __future__ import annotations

import itertools
import queue
import random
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from eos.client import PulsarClient
from eos.errors import EosError, RequestTimeout, broker_error
from eos.ids import EntryPlace
from eos.transport.connection import Connection
from eos.wire import commands

_MOST_CHUNKS: Final = 5
_REPEATED_SHARE: Final = 0.1
# Above those of a client. Each is used once: a broker takes a second producer of a connection with
# the same id for the first one, whatever its topic is (measured).
_producer_ids = itertools.count(1 << 32)


@dataclass(frozen=True)
class ChunkedMessage:
    """A message; without ``is_complete`` its last chunk is not sent."""

    value: bytes
    name: str = ""
    key: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    is_complete: bool = True


@dataclass(frozen=True)
class _Chunk:
    message: ChunkedMessage
    sequence_id: int
    uuid: str
    number: int
    of: int
    payload: bytes

    @property
    def completes(self) -> bool:
        return self.number == self.of - 1


class _ChunkProducer:
    """A producer of one topic. Implements ``ProducerListener``."""

    def __init__(self, connection: Connection, topic: str, timeout_s: float) -> None:
        self._connection = connection
        self._id = next(_producer_ids)
        self._timeout_s = timeout_s
        self._answers: queue.SimpleQueue[commands.SendReceipt | EosError] = queue.SimpleQueue()
        # Not by a producer of the client, which writes no chunks.
        connection.listeners.add_producer(self._id, self)
        self._name = connection.request(
            lambda request_id: commands.Producer(
                topic=topic,
                producer_id=self._id,
                request_id=request_id,
                user_provided_producer_name=False,
            ),
            commands.ProducerSuccess,
            timeout_s=timeout_s,
            doing=f"Opening a producer of chunks on {topic}",
        ).producer_name

    def send(self, chunk: _Chunk) -> None:
        """Send an entry; ``receipt`` returns the answers in the same order."""
        message, is_part = chunk.message, chunk.of > 1
        self._connection.send(
            commands.Send(producer_id=self._id, sequence_id=chunk.sequence_id, num_messages=1),
            commands.MessageMetadata(
                producer_name=self._name,
                sequence_id=chunk.sequence_id,
                publish_time=time.time_ns() // 1_000_000,
                properties=tuple(
                    commands.KeyValue(key=name, value=text)
                    for name, text in message.properties.items()
                ),
                partition_key=None if message.key is None else message.key.encode(),
                uncompressed_size=len(message.value),
                uuid=chunk.uuid if is_part else None,
                num_chunks_from_msg=chunk.of if is_part else None,
                chunk_id=chunk.number if is_part else None,
            ),
            chunk.payload,
        )

    def receipt(self) -> EntryPlace:
        """Return the place of the next sent entry.

        Raises:
            EosError: the broker refuses it, or the connection is lost.
        """
        try:
            answer = self._answers.get(timeout=self._timeout_s)
        except queue.Empty:
            raise RequestTimeout(f"No receipt of a chunk after {self._timeout_s:.0f} s.") from None
        if isinstance(answer, EosError):
            raise answer
        assert answer.message_id is not None
        return answer.message_id.message_id().place

    def on_send_receipt(self, acknowledgement: commands.SendReceipt) -> None:
        """See ``ProducerListener``."""
        self._answers.put(acknowledgement)

    def on_send_error(self, error: commands.SendError) -> None:
        """See ``ProducerListener``."""
        self._answers.put(broker_error(error.error, error.message, doing="Sending a chunk"))

    def on_closed(self, reason: EosError) -> None:
        """See ``ProducerListener``."""
        self._answers.put(reason)


def send_in_chunks(
    client: PulsarClient,
    topic: str,
    queues: Sequence[Sequence[ChunkedMessage]],
    rng: random.Random,
    *,
    timeout_s: float,
) -> dict[str, EntryPlace]:
    """Send each queue by a producer of its own, their chunks mixed; return the places by name.

    Raises:
        EosError: not all are known to be sent.
    """
    connection = client.lookup.broker_of(topic)
    lines = [
        (_ChunkProducer(connection, topic, timeout_s), list(_chunks(messages, rng)))
        for messages in queues
    ]
    # Chunks of several producers lie between each other, as in any busy topic.
    turns = [line for line in lines for _ in line[1]]
    rng.shuffle(turns)
    left = {id(line): iter(line[1]) for line in lines}
    for line in turns:
        line[0].send(next(left[id(line)]))
    places: dict[str, EntryPlace] = {}
    for producer, chunks in lines:
        for chunk in chunks:
            place = producer.receipt()
            if chunk.completes:
                places[chunk.message.name] = place
    return places


def _chunks(messages: Sequence[ChunkedMessage], rng: random.Random) -> Iterator[_Chunk]:
    for sequence_id, message in enumerate(messages):
        of = rng.randint(1 if message.is_complete else 2, min(_MOST_CHUNKS, len(message.value)))
        cuts = sorted(rng.sample(range(1, len(message.value)), of - 1))
        name = str(uuid.UUID(int=rng.getrandbits(128)))
        chunks = [
            _Chunk(message, sequence_id, name, number, of, message.value[begin:end])
            for number, (begin, end) in enumerate(
                zip([0, *cuts], [*cuts, len(message.value)], strict=True)
            )
        ]
        if not message.is_complete:
            chunks.pop()
        elif of > 1 and rng.random() < _REPEATED_SHARE:
            # Before the last chunk: a repeated one would be a second message.
            again = rng.randrange(of - 1)
            chunks[again + 1 : again + 1] = chunks[: again + 1]
        yield from chunks
