"""Hostile entries that any client with write access to a topic can store."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final
from unittest import mock

from eos.client import PulsarClient
from eos.ids import MessageId
from eos.transport import connection
from eos.wire.batch import Compression, Message, encode_batches, rows_from_messages

ODD_COUNTS: Final = (0, -1, -1000, -(2**31), 2**31 - 1)
"""Message counts for an entry's metadata."""


def send_claiming(client: PulsarClient, topic: str, count: int) -> MessageId:
    """Store an entry of one message whose metadata claim ``count`` messages."""
    (batch,) = encode_batches(rows_from_messages([Message(b"x")]))
    producer = client.entry_producer(topic, create=True)
    sent = producer.send_batch(replace(batch, num_messages=count)).result(timeout=20)
    producer.close()
    return sent


def send_inflating(client: PulsarClient, topic: str, values: Iterable[bytes]) -> list[MessageId]:
    """Store an entry for each value, compressed with ZSTD: a few KB if the value is zeros."""
    producer, sent = client.entry_producer(topic, create=True), []
    for value in values:
        rows = rows_from_messages([Message(value)])
        (batch,) = encode_batches(rows, compression=Compression.ZSTD)
        sent.append(producer.send_batch(batch).result(timeout=20))
    producer.close()
    return sent


def send_odd_text(client: PulsarClient, topic: str) -> MessageId:
    """Store a message with a property in Latin-1, as some clients can; brokers do not mind."""
    encode_send, pair = connection.encode_send, b"\x0a\x04name\x12\x04caf\xe9"

    def encode(send, metadata, payload):
        odd = metadata.encode() + bytes([0x22, len(pair)]) + pair
        return encode_send(send, mock.Mock(encode=lambda: odd), payload)

    with mock.patch.object(connection, "encode_send", encode):
        producer = client.entry_producer(topic, create=True)
        sent = producer.send(b"").result(timeout=20)
        producer.close()
    return sent


def send_without_checksum(client: PulsarClient, topic: str, value: bytes) -> MessageId:
    """Store ``value`` without a checksum, as some clients do; brokers and readers accept it."""
    encode_send = connection.encode_send

    def encode(send, metadata, payload):
        head = encode_send(send, metadata, payload)
        total, command_bytes = int.from_bytes(head[:4], "big"), int.from_bytes(head[4:8], "big")
        command, behind = head[4 : 8 + command_bytes], head[8 + command_bytes + 6 :]
        return (total - 6).to_bytes(4, "big") + command + behind

    with mock.patch.object(connection, "encode_send", encode):
        producer = client.entry_producer(topic, create=True)
        sent = producer.send(value).result(timeout=20)
        producer.close()
    return sent
