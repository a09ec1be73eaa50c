"""An entry reader on a scripted broker: cases that a real one can't be made to produce."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from eos.client import ONE_PERMIT, Entry, EntryReader, PulsarClient
from eos.errors import (
    BrokerError,
    BrokerNotReady,
    ConnectionLost,
    ConsumerBusy,
    EosError,
    ProtocolError,
    RequestTimeout,
    SubscriptionNotFound,
)
from eos.ids import MessageId
from eos.wire import commands
from eos.wire.frames import Delivery, FrameDecoder, encode_frame
from eos.wire.messages import WireMessage
from tests.transport.scripted import Peer, ScriptedBroker, wait_until
from tests.wire.entries import body, frame, metadata

TOPIC = "persistent://public/default/t"


class Broker(ScriptedBroker):
    """A broker that answers all commands correctly.

    It calls ``deliver`` after the first FLOW; with ``delivers_again``, after the first FLOW of each
    consumer.
    """

    def __init__(
        self,
        deliver: Callable[[Peer, int], None] = lambda _peer, _id: None,
        *,
        delivers_again: bool = False,
    ) -> None:
        self._deliver = deliver
        self._delivers_again = delivers_again
        self._delivered: set[int] = set()
        self.refusal = 0
        self.ack_error: int | None = None
        self.unanswered: tuple[type[WireMessage], ...] = ()
        super().__init__(self._script)

    def of(self, kind: type[WireMessage]) -> list[WireMessage]:
        """Return all received commands of ``kind``."""
        return [command for command in self.received if isinstance(command, kind)]

    def _script(self, peer: Peer) -> None:
        peer.welcome()
        while True:
            command = peer.next()
            self.received.append(command)
            if not isinstance(command, self.unanswered):
                self._answer(peer, command)

    def _answer(self, peer: Peer, command: WireMessage) -> None:
        match command:
            case commands.Lookup():
                peer.send(
                    commands.LookupResponse(
                        request_id=command.request_id, response=1, broker_url=self.url
                    )
                )
            case commands.Subscribe() if self.refusal:
                peer.send(
                    commands.Error(request_id=command.request_id, error=self.refusal, message="no")
                )
            case commands.Ack():
                peer.send(
                    commands.AckResponse(
                        consumer_id=1, request_id=command.request_id, error=self.ack_error
                    )
                )
            case commands.Flow() if self._is_due(command.consumer_id):
                self._delivered.add(command.consumer_id)
                self._deliver(peer, command.consumer_id)
            case commands.Subscribe() | commands.CloseConsumer():
                peer.send(commands.Success(request_id=command.request_id))

    def _is_due(self, consumer_id: int) -> bool:
        return not self._delivered or (self._delivers_again and consumer_id not in self._delivered)


@contextmanager
def reading(
    broker: Broker, start: MessageId | None = None, permits: int = 1000
) -> Iterator[EntryReader]:
    """Open a reader on ``broker``; afterwards, check that its connection still works."""
    with broker, PulsarClient(broker.url, timeout_s=10) as client:
        with client.entry_reader(TOPIC, start, permits=permits) as reader:
            yield reader
        client.subscribe_durably(TOPIC, "still works")
        assert broker.connections == 1


def plain(consumer_id: int, number: int) -> bytes:
    return frame(consumer_id, number, body(metadata(), b"%d" % number))


def sending(*numbers: int) -> Callable[[Peer, int], None]:
    def deliver(peer: Peer, consumer_id: int) -> None:
        peer.sock.sendall(b"".join(plain(consumer_id, number) for number in numbers))

    return deliver


def numbers(entries: list[Entry]) -> list[int]:
    return [int(entry.payload) for entry in entries]


def read(reader: EntryReader, wait_s: float = 1.5) -> list[Entry]:
    return list(reader.read(time.monotonic() + wait_s))


def test_what_comes_beyond_the_permits_is_asked_for_again():
    rounds = iter([range(11), [10]])
    broker = Broker(
        lambda peer, consumer_id: sending(*next(rounds))(peer, consumer_id), delivers_again=True
    )
    with reading(broker, permits=10) as reader:
        read(reader, 0)
        wait_until(lambda: reader._is_out_of_step)
        assert len(reader._queue) == 10
        entries = reader.read(time.monotonic() + 20)
        assert numbers(list(itertools.islice(entries, 11))) == list(range(11))
        starts = [command.start_message_id for command in broker.of(commands.Subscribe)]
        assert [start and start.message_id() for start in starts] == [None, MessageId(7, 10)]


def test_one_by_one_nothing_is_taken_that_was_not_asked_for():
    """A broker that miscounts permits may have skipped an entry before this one."""
    goes_on, rounds = threading.Event(), iter([0, 1])

    def deliver(peer: Peer, consumer_id: int) -> None:
        peer.sock.sendall(plain(consumer_id, number := next(rounds)))
        if number == 0:
            goes_on.wait(20)
            peer.sock.sendall(plain(consumer_id, 5))

    with reading(Broker(deliver, delivers_again=True), permits=ONE_PERMIT) as reader:
        entries = reader.read(time.monotonic() + 20)
        assert next(entries).payload == b"0"
        goes_on.set()
        wait_until(lambda: reader._is_out_of_step)
        assert next(entries).payload == b"1"


def test_large_batches_that_come_late_are_no_more_than_was_asked_for():
    """The broker sends all entries that it read at once, however many messages they hold.

    A slow reader has already taken the first entry when the next ones arrive.
    """
    goes_on = threading.Event()

    def large(consumer_id: int, number: int) -> bytes:
        return frame(
            consumer_id, number, body(metadata(num_messages_in_batch=1000), b"%d" % number)
        )

    def deliver(peer: Peer, consumer_id: int) -> None:
        peer.sock.sendall(large(consumer_id, 0))
        goes_on.wait(20)
        peer.sock.sendall(b"".join(large(consumer_id, number) for number in range(1, 6)))

    with reading(Broker(deliver), MessageId(7, 0)) as reader:
        entries = reader.read_to(MessageId(7, 5), time.monotonic() + 20)
        assert next(entries).payload == b"0"
        goes_on.set()
        wait_until(lambda: len(reader._queue) == 5)
        assert numbers(list(itertools.islice(entries, 5))) == [1, 2, 3, 4, 5]


def test_an_entry_that_claims_more_messages_than_a_command_can_permit_stops_nothing():
    claims = 2**31 - 1

    def deliver(peer: Peer, consumer_id: int) -> None:
        forged = body(metadata(num_messages_in_batch=claims), b"0")
        peer.sock.sendall(frame(consumer_id, 0, forged))

    broker = Broker(deliver)
    with reading(broker) as reader:
        assert numbers(read(reader)) == [0]
        permits = [flow.permits for flow in broker.of(commands.Flow)]
        assert permits[1:] == [claims]


def test_at_a_limit_a_reader_retries_with_one_subscription():
    """The broker may keep the subscription of a reader that it refuses."""
    broker = Broker()
    broker.refusal = 5
    with broker, PulsarClient(broker.url, timeout_s=10) as client:
        with ThreadPoolExecutor(1) as pool:
            opening = pool.submit(client.entry_reader, TOPIC, waits_at_limit=True)
            wait_until(lambda: len(broker.of(commands.Subscribe)) >= 2)
            broker.refusal = 0
            opening.result(20).close()
        names = {command.subscription for command in broker.of(commands.Subscribe)}
        assert len(names) == 1


def test_permits_are_given_back_in_halves_when_more_is_wanted():
    broker = Broker(sending(*range(10)))
    with reading(broker, permits=10) as reader:
        entries = reader.read(time.monotonic() + 20)
        for _ in range(5):
            next(entries)
        assert [flow.permits for flow in broker.of(commands.Flow)] == [10]
        next(entries)
        wait_until(lambda: len(broker.of(commands.Flow)) == 2)
        assert [flow.permits for flow in broker.of(commands.Flow)] == [10, 5]


def test_what_comes_again_is_dropped():
    with reading(Broker(sending(3, 4, 3, 4, 5))) as reader:
        assert numbers(read(reader)) == [3, 4, 5]


def test_what_is_below_the_start_is_dropped():
    with reading(Broker(sending(0, 1, 4, 5)), MessageId(7, 4)) as reader:
        assert numbers(read(reader)) == [4, 5]


def test_what_is_still_under_way_to_an_earlier_consumer_is_dropped():
    """Its entry is after the redelivered ones: reading it would skip all entries in between."""
    with reading(Broker(sending(0))) as reader:
        (late,) = FrameDecoder().feed(plain(reader._id + 1, 9))
        assert isinstance(late, Delivery)
        reader.on_delivery(late)
        assert numbers(read(reader)) == [0]


def test_a_reader_that_cannot_have_the_rest_delivered_again_says_so(monkeypatch):
    monkeypatch.setattr("eos.client._entry_reader.MAX_QUEUED_BYTES", 100)
    broker = Broker(sending(*range(20)))
    with broker, PulsarClient(broker.url, timeout_s=10) as client:
        reader = client.entry_reader(TOPIC)
        read(reader, 0)
        wait_until(lambda: reader._is_out_of_step)
        broker.refusal = 6
        with pytest.raises(BrokerNotReady):
            read(reader, 20)
        with pytest.raises(ConnectionLost, match="could not subscribe again"):
            read(reader, 20)


def test_a_damaged_entry_ends_the_reader_and_nothing_behind_it_is_read():
    def deliver(peer: Peer, consumer_id: int) -> None:
        damaged = plain(consumer_id, 1)[:-1] + b"x"
        peer.sock.sendall(plain(consumer_id, 0) + damaged + plain(consumer_id, 2))

    with reading(Broker(deliver)) as reader:
        entries = reader.read(time.monotonic() + 20)
        assert next(entries).payload == b"0"
        for _ in range(2):
            with pytest.raises(ProtocolError, match="checksum"):
                list(reader.read(time.monotonic() + 20))


def test_pings_and_strangers_entries_do_not_extend_the_deadline():
    done = threading.Event()

    def deliver(peer: Peer, consumer_id: int) -> None:
        while not done.wait(0.01):
            peer.sock.sendall(encode_frame(commands.Ping()) + plain(consumer_id + 1, 1))

    with reading(Broker(deliver)) as reader:
        started = time.monotonic()
        assert read(reader, 0.5) == []
        assert 0.5 <= time.monotonic() - started < 5
        done.set()


def test_entries_that_wait_do_not_extend_the_deadline():
    with reading(Broker(sending(0, 1))) as reader:
        assert read(reader, 0) == []
        wait_until(lambda: len(reader._queue) == 2)
        assert read(reader, 0) == []
        assert numbers(read(reader)) == [0, 1]


def test_closing_tells_the_broker_and_waits_for_nothing():
    broker = Broker()
    with broker, PulsarClient(broker.url, timeout_s=10) as client:
        reader = client.entry_reader(TOPIC)
        broker.unanswered = (commands.CloseConsumer,)
        started = time.monotonic()
        reader.close()
        assert time.monotonic() - started < 5
        wait_until(lambda: broker.of(commands.CloseConsumer))


def test_a_subscription_that_is_not_answered_is_taken_back():
    broker = Broker()
    broker.unanswered = (commands.Subscribe,)
    with broker, PulsarClient(broker.url, timeout_s=2) as client:
        with pytest.raises(RequestTimeout):
            client.entry_reader(TOPIC)
        wait_until(lambda: broker.of(commands.CloseConsumer))


@pytest.mark.parametrize(
    ("code", "kind"), [(5, ConsumerBusy), (6, BrokerNotReady), (12, SubscriptionNotFound)]
)
def test_a_refusal_is_told_by_its_class(code, kind):
    broker = Broker()
    broker.refusal = code
    with broker, PulsarClient(broker.url, timeout_s=10) as client:
        with pytest.raises(kind):
            client.acknowledge(TOPIC, "s", MessageId(1, 1))
        with pytest.raises(kind):
            client.entry_reader(TOPIC)
        if code != 5:
            with pytest.raises(kind):
                client.subscribe_durably(TOPIC, "s")
        else:
            client.subscribe_durably(TOPIC, "s")  # busy, so it exists


@pytest.mark.parametrize("what", ["refused", "unanswered"])
def test_an_acknowledgement_that_is_not_taken_is_an_error(what):
    broker = Broker()
    broker.ack_error = 0 if what == "refused" else None
    broker.unanswered = () if what == "refused" else (commands.Ack,)
    error: type[EosError] = BrokerError if what == "refused" else RequestTimeout
    with broker, PulsarClient(broker.url, timeout_s=2) as client:
        with pytest.raises(error):
            client.acknowledge(TOPIC, "s", MessageId(1, 1))
        wait_until(lambda: broker.of(commands.CloseConsumer))
