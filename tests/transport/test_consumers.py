"""Entries on a connection: their consumer, and the maximum length of a frame."""

from __future__ import annotations

import threading

import pytest

from eos.errors import ConnectionLost, EosError, ProtocolError
from eos.transport.auth import Auth
from eos.transport.connection import Connection
from eos.wire import commands
from eos.wire.frames import Delivery, encode_frame
from tests.transport.scripted import Peer, ScriptedBroker
from tests.wire.entries import body, frame, metadata

MIB = 1024 * 1024


class Consumer:
    """Records the calls of a consumer's listener."""

    def __init__(self) -> None:
        self.deliveries: list[Delivery] = []
        self.reasons: list[EosError] = []
        self.heard = threading.Event()

    def on_delivery(self, delivery: Delivery) -> None:
        self.deliveries.append(delivery)
        self.heard.set()

    def on_closed(self, reason: EosError) -> None:
        self.reasons.append(reason)
        self.heard.set()


class Producer:
    """A producer with the same id as the consumer, whose listener must not be called."""

    def on_send_receipt(self, receipt: commands.SendReceipt) -> None: ...
    def on_send_error(self, error: commands.SendError) -> None: ...
    def on_closed(self, reason: EosError) -> None:
        assert isinstance(reason, ConnectionLost | ProtocolError)
        assert "consumer" not in reason.message


def hear(*frames: bytes, max_message_size: int = 5 * MIB) -> tuple[Consumer, Connection]:
    """The calls for consumer 1 after ``frames``, on a connection that stays open."""

    def script(peer: Peer) -> None:
        peer.next(commands.Connect)
        peer.send(commands.Connected(server_version="s", max_message_size=max_message_size))
        peer.next(commands.Flow)
        peer.sock.sendall(b"".join(frames))
        peer.next(commands.Ping)

    with ScriptedBroker(script) as broker:
        connection = Connection.open(broker.address, Auth(), timeout_s=10)
        consumer = Consumer()
        connection.listeners.add_consumer(1, consumer)
        connection.listeners.add_producer(1, Producer())
        connection.notify(lambda _: commands.Flow(consumer_id=1, permits=1))
        assert consumer.heard.wait(20)
        alive = connection.is_alive
        connection.close()
    assert alive == (not isinstance(consumer.reasons[0], ProtocolError))
    return consumer, connection


ENTRY = frame(1, 1, body(metadata(), b"value"))


def test_a_consumer_gets_its_entries_and_the_end_of_the_connection():
    consumer, _ = hear(frame(2, 1, body(metadata(), b"for another")), ENTRY)
    assert [delivery.open()[1] for delivery in consumer.deliveries] == [b"value"]
    assert isinstance(consumer.reasons[0], ConnectionLost)


def test_a_consumer_is_notified_that_the_broker_closed_it():
    consumer, connection = hear(encode_frame(commands.CloseConsumer(consumer_id=1, request_id=9)))
    assert [str(reason) for reason in consumer.reasons] == [
        str(ConnectionLost("The broker closed the consumer."))
    ]
    with pytest.raises(ConnectionLost):
        connection.listeners.add_consumer(1, consumer)


def test_an_entry_may_be_as_long_as_the_brokers_message_limit():
    payload = bytes(5 * MIB - 100)
    consumer, _ = hear(frame(1, 1, body(metadata(), payload)))
    assert consumer.deliveries[0].open()[1] == payload


def test_a_longer_entry_ends_the_connection():
    consumer, _ = hear(frame(1, 1, bytes(5 * MIB + MIB)))
    assert not consumer.deliveries
    assert "A frame of" in str(consumer.reasons[0])


def test_before_connected_frames_must_be_short():
    def script(peer: Peer) -> None:
        peer.next(commands.Connect)
        peer.sock.sendall(frame(1, 1, bytes(2 * MIB)))

    with ScriptedBroker(script) as broker, pytest.raises(ProtocolError, match="A frame of"):
        Connection.open(broker.address, Auth(), timeout_s=10)
