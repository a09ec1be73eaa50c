"""The reader on a scripted broker: lost connections, repeats, damage, and its reactions."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from eos.client import PulsarClient, Reader
from eos.errors import BrokerNotReady, EosError, ProtocolError
from eos.ids import MessageId
from eos.wire import commands
from eos.wire.commands import MessageIdData
from eos.wire.messages import WireMessage
from tests.transport.scripted import Peer, ScriptedBroker, nothing_left_behind
from tests.wire.entries import body, frame, metadata

TOPIC = "persistent://public/default/t"
LAST = 5


class Broker(ScriptedBroker):
    """Serves one topic; ``deliveries`` has one script for each of its readers, in order."""

    def __init__(
        self,
        *deliveries: Callable[[Peer], None],
        refusals: tuple[int, ...] = (),
        moves_when_asked: int = 0,
    ) -> None:
        self._deliveries = iter(deliveries)
        self._refusals = iter(refusals)
        self._moves_when_asked = moves_when_asked
        self.starts: list[int | None] = []
        super().__init__(self._script)

    def _script(self, peer: Peer) -> None:
        peer.welcome()
        while True:
            command = peer.next()
            self.received.append(command)
            self._answer(peer, command)

    def _answer(self, peer: Peer, command: WireMessage) -> None:
        match command:
            case commands.Lookup():
                answer = commands.LookupResponse(
                    request_id=command.request_id, response=1, broker_url=self.url
                )
                peer.send(answer)
            case commands.Subscribe():
                start = command.start_message_id
                self.starts.append(None if start is None else start.entry)
                refusal = next(self._refusals, 0)
                if refusal:
                    peer.send(commands.Error(request_id=command.request_id, error=refusal))
                else:
                    peer.send(commands.Success(request_id=command.request_id))
            case commands.GetLastMessageId() if self._moves_when_asked:
                self._moves_when_asked -= 1
                closing(peer)
            case commands.GetLastMessageId():
                last = MessageIdData(ledger=7, entry=LAST)
                peer.send(
                    commands.GetLastMessageIdResponse(
                        last_message_id=last, request_id=command.request_id
                    )
                )
            case commands.Flow():
                next(self._deliveries)(peer)


def entry(number: int) -> bytes:
    return frame(0, number, body(metadata(), b"%d" % number))


def sending(*numbers: int, then: bytes = b"", leave: bool = False) -> Callable[[Peer], None]:
    def deliver(peer: Peer) -> None:
        peer.sock.sendall(b"".join(map(entry, numbers)) + then)
        if leave:
            raise EOFError

    return deliver


def closing(peer: Peer) -> None:
    peer.send(commands.CloseConsumer(consumer_id=0, request_id=0))


@contextmanager
def reading(
    broker: Broker, start: MessageId | None = None, timeout_s: float = 5
) -> Iterator[Reader]:
    with (
        broker,
        nothing_left_behind(),
        PulsarClient(broker.url, timeout_s=timeout_s) as client,
        client.reader(TOPIC, start=start) as reader,
    ):
        yield reader


def read(reader: Reader) -> list[int]:
    """Return all values up to the last entry."""
    batches = reader.read_to(reader.last_id)
    return [int(value) for batch in batches for value in batch["value"].to_pylist()]


ALL = list(range(LAST + 1))


@pytest.mark.parametrize("cut", [1, 4, 20, 40])
def test_a_connection_that_is_cut_in_mid_frame_costs_nothing(cut: int) -> None:
    first = sending(0, 1, then=entry(2)[:cut], leave=True)
    broker = Broker(first, sending(2, 3, 4, 5))
    with reading(broker) as reader:
        assert read(reader) == ALL
    assert broker.starts == [None, 2]


def test_a_reader_that_the_broker_closed_goes_on_where_it_was() -> None:
    def first(peer: Peer) -> None:
        sending(0, 1, 2)(peer)
        closing(peer)

    broker = Broker(first, closing, sending(3, 4, 5))
    with reading(broker) as reader:
        assert read(reader) == ALL
    assert broker.starts == [None, 3, 3]


def test_what_comes_again_is_dropped() -> None:
    with reading(Broker(sending(0, 1, 2, 1, 2, 3, 0, 4, 5))) as reader:
        assert read(reader) == ALL


def test_the_whole_topic_instead_of_its_end_is_dropped() -> None:
    """If the start is after the end, a broker delivers the whole topic (measured)."""
    with reading(Broker(sending(*ALL, 6)), MessageId(7, 6)) as reader:
        assert [batch["value"].to_pylist() for batch in itertools.islice(reader.read(), 1)] == [
            [b"6"]
        ]


def test_what_lies_behind_the_end_is_kept_for_the_next_reading() -> None:
    with reading(Broker(sending(*ALL, 6, 7))) as reader:
        assert read(reader) == ALL
        (batch,) = itertools.islice(reader.read(idle_s=5), 1)
        assert batch["value"].to_pylist() == [b"6", b"7"]


def test_what_waits_is_given_however_short_the_silence_may_be() -> None:
    with reading(Broker(sending(*ALL, 6, 7))) as reader:
        assert read(reader) == ALL
        (batch,) = reader.read(idle_s=0)
        assert batch["value"].to_pylist() == [b"6", b"7"]


def test_an_end_that_is_no_entry_ends_at_the_first_one_behind_it() -> None:
    with reading(Broker(sending(0, 1, 7, 8))) as reader:
        assert read(reader) == [0, 1]
        (batch,) = itertools.islice(reader.read(idle_s=5), 1)
        assert batch["value"].to_pylist() == [b"7", b"8"]


def test_a_damaged_entry_is_an_error_behind_those_before_it_and_stays_one() -> None:
    damaged = bytearray(entry(2))
    damaged[-1] ^= 1
    with reading(Broker(sending(0, 1, then=bytes(damaged) + entry(3)))) as reader:
        batches = reader.read()
        assert next(batches)["value"].to_pylist() == [b"0", b"1"]
        for _ in range(2):
            with pytest.raises(ProtocolError, match="7:2:-1:-1 can't be read"):
                next(batches)
            batches = reader.read()
        assert reader.next_id == MessageId(7, 2)


def test_a_batch_that_is_malformed_is_an_error_behind_those_before_it_and_stays_one() -> None:
    odd = frame(0, 2, body(metadata(num_messages_in_batch=2), b"\0\0\0\2\x18\0"))
    with reading(Broker(sending(0, 1, then=odd + entry(3)))) as reader:
        batches = reader.read()
        assert next(batches)["value"].to_pylist() == [b"0", b"1"]
        for _ in range(2):
            with pytest.raises(ProtocolError, match="7:2:-1:-1 can't be read"):
                next(batches)
            batches = reader.read()
        assert reader.next_id == MessageId(7, 2)


def test_a_broker_that_is_not_ready_is_asked_again() -> None:
    broker = Broker(sending(0, 1, leave=True), sending(2, 3, 4, 5), refusals=(0, 6, 6))
    with reading(broker) as reader:
        assert read(reader) == ALL
    assert broker.starts == [None, 2, 2, 2]


def test_a_topic_that_moves_while_a_reader_is_opened_costs_no_timeout() -> None:
    """A request under way while the consumer is closed gets no answer (measured at unloads)."""
    began = time.monotonic()
    broker = Broker(sending(*ALL), refusals=(6,), moves_when_asked=2)
    with reading(broker, timeout_s=30) as reader:
        assert read(reader) == ALL
    assert time.monotonic() - began < 20


def test_a_broker_that_is_never_ready_is_given_up_in_time() -> None:
    broker = Broker(sending(0, 1, leave=True), refusals=(0, *(6,) * 100))
    with reading(broker) as reader, pytest.raises(BrokerNotReady):
        read(reader)


def test_a_refusal_at_the_beginning_leaves_nothing_open() -> None:
    def refuse(peer: Peer) -> None:
        peer.welcome()
        while True:
            command = peer.next()
            if isinstance(command, commands.Lookup):
                answer = commands.LookupResponse(
                    request_id=command.request_id, response=1, broker_url=broker.url
                )
                peer.send(answer)
            elif isinstance(command, commands.Subscribe):
                peer.send(commands.Error(request_id=command.request_id, error=4, message="no"))

    with (
        ScriptedBroker(refuse) as broker,
        nothing_left_behind(),
        PulsarClient(broker.url, timeout_s=5) as client,
        pytest.raises(EosError, match="no"),
    ):
        client.reader(TOPIC)
