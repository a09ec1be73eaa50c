"""A consumer facing a scripted broker: what the real one can't be made to do."""

from __future__ import annotations

import pytest

from eos.client import PulsarClient
from eos.errors import EosError, ProtocolError, Retriable
from eos.wire import commands
from eos.wire.frames import FrameDecoder
from tests.client.test_entry_reader_faults import TOPIC, Broker, plain, sending
from tests.transport.scripted import wait_until


def test_an_acknowledgement_that_is_refused_is_an_error_and_can_be_repeated():
    broker = Broker(sending(0))
    broker.ack_error = 0
    with broker, PulsarClient(broker.url, timeout_s=5) as client:
        consumer = client.consumer(TOPIC, "s")
        message = consumer.receive(5)
        with pytest.raises(EosError):
            consumer.acknowledge(message)
        broker.ack_error = None
        consumer.acknowledge(message)
        with pytest.raises(Retriable, match="not waiting"):
            consumer.acknowledge(message)


def test_a_damaged_entry_is_an_error_and_what_is_behind_it_is_received():
    def deliver(peer, consumer_id):
        damaged = plain(consumer_id, 1)[:-1] + b"x"
        peer.sock.sendall(damaged + plain(consumer_id, 2))

    broker = Broker(deliver)
    with broker, PulsarClient(broker.url, timeout_s=5) as client:
        consumer = client.consumer(TOPIC, "s")
        with pytest.raises(ProtocolError):
            consumer.receive(5)
        assert consumer.receive(5).value == b"2"


def test_what_is_under_way_to_an_earlier_consumer_is_dropped():
    """It would pass for a delivery to the one that has subscribed again."""

    def deliver(peer, consumer_id):
        peer.send(commands.CloseConsumer(consumer_id=consumer_id, request_id=0))

    broker = Broker(deliver)
    with broker, PulsarClient(broker.url, timeout_s=5) as client:
        consumer = client.consumer(TOPIC, "s")
        wait_until(lambda: consumer._connection is None)
        assert consumer.receive(0.2) is None
        first, second = (one.consumer_id for one in broker.of(commands.Subscribe))
        assert first != second
        for number in (first, second):
            (delivery,) = FrameDecoder().feed(plain(number, number))
            consumer.on_delivery(delivery)
        assert consumer.receive(5).value == b"%d" % second
        assert consumer.receive(0.2) is None
