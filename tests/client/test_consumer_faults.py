"""A consumer facing a scripted broker: what the real one can't be made to do."""

from __future__ import annotations

import pytest

from eos.client import PulsarClient
from eos.errors import EosError, ProtocolError, Retriable
from tests.client.test_entry_reader_faults import TOPIC, Broker, plain, sending


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
