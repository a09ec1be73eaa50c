"""A consumer on a scripted broker: cases that a real broker can't be made to produce."""

from __future__ import annotations

import struct
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from eos.client import PulsarClient, _receiver
from eos.client._lookup import Lookup
from eos.errors import (
    EosError,
    Fatal,
    ProtocolError,
    RequestTimeout,
    Retriable,
    TransactionPoisoned,
)
from eos.wire import commands
from eos.wire.batch import Message, encode_batches, rows_from_messages
from eos.wire.frames import FrameDecoder, encode_frame
from eos.wire.opened_entries import EntryOpener
from tests.client.test_entry_reader_faults import TOPIC, Broker, plain, sending
from tests.transport.scripted import wait_until
from tests.wire.entries import body, frame, metadata


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


def close_consumer(peer, consumer_id):
    """As at an unload of the topic."""
    peer.send(commands.CloseConsumer(consumer_id=consumer_id, request_id=0))


@pytest.mark.parametrize("step", [(Lookup, "broker_of"), (_receiver, "subscribe")])
def test_closed_while_it_subscribes_again_a_consumer_leaves_nothing_open(monkeypatch, step):
    broker = Broker(close_consumer)
    with broker, PulsarClient(broker.url, timeout_s=5) as client:
        consumer = client.consumer(TOPIC, "s")
        wait_until(lambda: consumer._connection is None)
        go_on = getattr(*step)

        def close_first(*args, **options):
            consumer.close()  # as another thread may do
            return go_on(*args, **options)

        monkeypatch.setattr(*step, close_first)
        with pytest.raises(Fatal, match="closed"):
            consumer.receive(5)
        wait_until(lambda: still_open(broker) == set())


def still_open(broker: Broker) -> set[int]:
    opened: set[int] = set()
    for one in broker.received:
        if isinstance(one, commands.Subscribe):
            opened.add(one.consumer_id)
        elif isinstance(one, commands.CloseConsumer):
            opened.discard(one.consumer_id)
    return opened


def test_what_is_under_way_to_an_earlier_consumer_is_dropped():
    """It would be mistaken for a delivery to the consumer that has subscribed again."""
    broker = Broker(close_consumer)
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


def test_more_entries_than_were_permitted_are_an_error_and_the_next_call_subscribes_again(
    monkeypatch,
):
    monkeypatch.setattr("eos.client._subscriptions.PERMITS", 5)
    broker = Broker(sending(*range(6)))
    with broker, PulsarClient(broker.url, timeout_s=5) as client:
        consumer = client.consumer(TOPIC, "s")
        wait_until(lambda: consumer._connection is None)
        with pytest.raises(ProtocolError, match="than permitted"):
            consumer.receive(5)
        assert consumer.receive(0.2) is None
        assert len(broker.of(commands.Subscribe)) == 2
        assert broker.of(commands.CloseConsumer)


def permits(broker: Broker) -> int:
    return sum(flow.permits for flow in broker.of(commands.Flow))


def test_what_is_taken_is_permitted_again_and_what_is_damaged_too():
    def deliver(peer, consumer_id):
        meta = metadata(num_messages_in_batch=3)
        for number in range(8):
            peer.sock.sendall(frame(consumer_id, number, body(meta, b"x"))[:-1] + b"y")

    broker = Broker(deliver)
    with broker, PulsarClient(broker.url, timeout_s=5) as client:
        consumer = client.consumer(TOPIC, "s")
        for _ in range(8):
            with pytest.raises(ProtocolError):
                consumer.receive(5)
        wait_until(lambda: permits(broker) >= 8 + 3 * 8)


def test_large_entries_are_permitted_few_at_a_time(monkeypatch):
    monkeypatch.setattr("eos.client._subscriptions.QUEUE_BYTES", 1000)

    def deliver(peer, consumer_id):
        large = body(metadata(), b"x" * 400)
        peer.sock.sendall(b"".join(frame(consumer_id, number, large) for number in range(8)))

    broker = Broker(deliver)
    with broker, PulsarClient(broker.url, timeout_s=5) as client:
        consumer = client.consumer(TOPIC, "s")
        for taken in range(1, 9):
            assert consumer.receive(5)
            assert permits(broker) - taken <= 8 - min(taken, 6)
        wait_until(lambda: permits(broker) == 8 + 2)


def test_far_too_many_bytes_at_once_make_it_subscribe_again_and_ask_for_less(monkeypatch):
    monkeypatch.setattr("eos.client._subscriptions.QUEUE_BYTES", 1000)
    monkeypatch.setattr("eos.client._subscriptions.QUEUE_BYTES_MAX", 4000)

    def deliver(peer, consumer_id):
        large = body(metadata(), b"x" * 900)
        peer.sock.sendall(b"".join(frame(consumer_id, number, large) for number in range(8)))

    broker = Broker(deliver)
    with broker, PulsarClient(broker.url, timeout_s=5) as client:
        consumer = client.consumer(TOPIC, "s")
        wait_until(lambda: consumer._connection is None)
        assert consumer.receive(0.2) is None
        wait_until(lambda: [flow.permits for flow in broker.of(commands.Flow)] == [8, 1])


def test_what_others_have_acknowledged_in_an_entry_is_not_given_again():
    def deliver(peer, consumer_id):
        batch = next(
            iter(encode_batches(rows_from_messages([Message(b"%d" % n) for n in range(70)])))
        )
        meta = metadata(num_messages_in_batch=70, uncompressed_size=batch.uncompressed_bytes)
        command = commands.Deliver(
            consumer_id=consumer_id,
            message_id=commands.MessageIdData(ledger=7, entry=1),
            ack_set=(-(2**63) + 2, 0b100000),  # of 0 to 69, only 1, 63 and 69 remain
        )
        content = body(meta, bytes(batch.payload))
        simple = encode_frame(command)
        peer.sock.sendall(struct.pack(">I", len(simple) - 4 + len(content)) + simple[4:] + content)

    broker = Broker(deliver)
    with broker, PulsarClient(broker.url, timeout_s=5) as client:
        consumer = client.consumer(TOPIC, "s", type="shared")
        messages = consumer.receive_batch(100, 5)
        assert [one.value for one in messages] == [b"1", b"63", b"69"]
        assert [one.id.batch_index for one in messages] == [1, 63, 69]
        consumer.acknowledge(messages)
        assert len(broker.of(commands.Ack)) == 1


def test_an_acknowledgement_without_an_answer_is_an_error_and_is_not_lost():
    broker = Broker(sending(0))
    broker.unanswered = (commands.Ack,)
    with broker, PulsarClient(broker.url, timeout_s=3) as client:
        consumer = client.consumer(TOPIC, "s")
        message = consumer.receive(5)
        with pytest.raises(RequestTimeout):
            consumer.acknowledge(message)
        broker.unanswered = ()
        consumer.acknowledge(message)  # the broker accepts it a second time


def test_a_consumer_that_is_closed_while_it_acknowledges_says_so_and_subscribes_again():
    class Closing(Broker):
        def _answer(self, peer, command):
            if isinstance(command, commands.Ack) and len(self.of(commands.Ack)) == 1:
                closed = commands.CloseConsumer(consumer_id=command.consumer_id, request_id=0)
                peer.send(closed)
            else:
                super()._answer(peer, command)

    broker = Closing(sending(0))
    with broker, PulsarClient(broker.url, timeout_s=3) as client:
        consumer = client.consumer(TOPIC, "s")
        message = consumer.receive(5)
        with pytest.raises(EosError):
            consumer.acknowledge(message)
        with pytest.raises(Retriable, match="not waiting"):
            consumer.acknowledge(message)  # it will be redelivered
        assert consumer.receive(0.2) is None
        assert len(broker.of(commands.Subscribe)) == 2


def test_deliveries_of_an_epoch_before_the_last_redelivery_are_not_given():
    broker = Broker()
    with broker, PulsarClient(broker.url, timeout_s=5) as client:
        consumer = client.consumer(TOPIC, "s")
        consumer.redeliver()
        for epoch, number in ((0, 1), (1, 2)):
            (delivery,) = FrameDecoder().feed(plain(consumer._id, number))
            old = replace(delivery.command, consumer_epoch=epoch)
            consumer.on_delivery(replace(delivery, command=old))
        assert consumer.receive(5).value == b"2"
        assert consumer.receive(0.2) is None


def test_a_coordinator_that_refuses_the_subscription_poisons_and_nothing_is_acknowledged(
    through, proxy, name
):
    with through.producer(name, create=True) as producer:
        producer.send(b"x")
    with through.consumer(name, "s") as consumer:
        message = consumer.receive(20)
        txn = through.transaction()

        def refuse(command: commands.AddSubscriptionToTxn) -> commands.AddSubscriptionToTxnResponse:
            return commands.AddSubscriptionToTxnResponse(
                request_id=command.request_id, error=22, message="no"
            )

        with proxy.fault(commands.AddSubscriptionToTxn, refuse), pytest.raises(EosError):
            consumer.acknowledge(message, txn=txn)
        with pytest.raises(TransactionPoisoned):
            txn.commit()
        assert proxy.seen[commands.Ack] == 0
        consumer.acknowledge(message)


def test_what_was_queued_before_a_seek_is_not_received_after_it():
    """The broker closes the consumer, but may do so after its answer."""

    class Seeking(Broker):
        def _answer(self, peer, command):
            if isinstance(command, commands.Seek):
                peer.send(commands.Success(request_id=command.request_id))
            else:
                super()._answer(peer, command)

    broker = Seeking(sending(1, 2), delivers_again=True)
    with broker, PulsarClient(broker.url, timeout_s=5) as client:
        consumer = client.consumer(TOPIC, "s")
        first = consumer.receive(5)
        assert first.value == b"1"
        wait_until(lambda: consumer._queue)
        consumer.seek(first.id)
        assert consumer.receive(5).value == b"1"
        assert len(broker.of(commands.Subscribe)) == 2


@pytest.fixture
def slow_key(monkeypatch):
    """Opening an entry waits for ``release``, as for a slow key server."""
    asked, release, opened = threading.Event(), threading.Event(), EntryOpener.open

    def open_slowly(opener, entry):
        asked.set()
        assert release.wait(20)
        return opened(opener, entry)

    monkeypatch.setattr(EntryOpener, "open", open_slowly)
    yield asked, release
    release.set()


def test_a_slow_key_server_does_not_stop_others_on_the_connection(slow_key):
    asked, release = slow_key
    broker, pool = Broker(sending(1)), ThreadPoolExecutor(2)
    with broker, PulsarClient(broker.url, timeout_s=5) as client, pool:
        consumer = client.consumer(TOPIC, "s")
        received = pool.submit(consumer.receive, 5)
        assert asked.wait(20)
        (delivery,) = FrameDecoder().feed(plain(consumer._id, 2))
        pool.submit(consumer.on_delivery, delivery).result(5)
        client.subscribe_durably(TOPIC, "other")  # its answer comes on the same connection
        release.set()
        assert received.result(5).value == b"1"
        assert consumer.receive(5).value == b"2"


def test_an_entry_that_comes_again_while_its_key_is_fetched_is_received_once(slow_key):
    asked, release = slow_key
    broker = Broker(sending(1))
    with broker, PulsarClient(broker.url, timeout_s=5) as client, ThreadPoolExecutor(1) as pool:
        consumer = client.consumer(TOPIC, "s")
        received = pool.submit(consumer.receive, 5)
        assert asked.wait(20)
        consumer.redeliver()
        (delivery,) = FrameDecoder().feed(plain(consumer._id, 1))
        again = replace(delivery.command, consumer_epoch=1)
        consumer.on_delivery(replace(delivery, command=again))
        release.set()
        assert received.result(5).value == b"1"
        assert consumer.receive(0.2) is None


def test_an_interrupt_while_a_key_is_fetched_lets_the_entry_come_again(monkeypatch):
    broker = Broker(sending(1, 2), delivers_again=True)
    with broker, PulsarClient(broker.url, timeout_s=5) as client:
        consumer = client.consumer(TOPIC, "s")
        with monkeypatch.context() as patch:
            patch.setattr(EntryOpener, "open", interrupted)
            with pytest.raises(KeyboardInterrupt):
                consumer.receive(5)
        assert [consumer.receive(5).value for _ in range(2)] == [b"1", b"2"]


def interrupted(opener, entry):
    raise KeyboardInterrupt
