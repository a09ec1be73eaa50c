"""A blocking connection and a scripted peer."""

from __future__ import annotations

import time

import pytest

from eos.errors import (
    ConnectionLost,
    EosError,
    ProtocolError,
    RequestTimeout,
    TopicNotFound,
    Unauthorized,
)
from eos.transport import blocking_connection as blocking_module
from eos.transport.auth import Auth
from eos.transport.blocking_connection import BlockingConnection
from eos.transport.listeners import AnswerT
from eos.wire import commands
from eos.wire.frames import encode_frame
from tests.transport.scripted import (
    CONNECTED,
    Peer,
    ScriptedBroker,
    nothing_left_behind,
)
from tests.wire.entries import body, frame, metadata

ENTRY = frame(0, 5, body(metadata(), b"x"))


def open_direct(
    broker: ScriptedBroker, auth: Auth | None = None, timeout_s: float = 10.0
) -> BlockingConnection:
    return BlockingConnection.open(broker.address, auth or Auth(), timeout_s=timeout_s)


def ask(
    connection: BlockingConnection,
    answer: type[AnswerT] = commands.Success,
    *,
    timeout_s: float = 10.0,
) -> AnswerT:
    """Any request will do."""
    return connection.request(
        lambda request_id: commands.CloseProducer(producer_id=1, request_id=request_id),
        answer,
        timeout_s=timeout_s,
        doing="Asking",
    )


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\x00\x00\x00\x08\x00\x00\x00\x64abcd",
        b"\xff" * 1000,
        encode_frame(CONNECTED)[:-3],
        ENTRY,
        encode_frame(commands.Connected(server_version="x", max_message_size=0)),
    ],
)
def test_a_nonsense_answer_to_connect_is_an_error_and_frees_everything(said):
    with (
        ScriptedBroker(lambda peer: peer.sock.sendall(said)) as broker,
        nothing_left_behind(),
        pytest.raises(EosError),
    ):
        open_direct(broker)


def test_no_answer_repeats_the_credentials():
    def script(peer: Peer) -> None:
        said = f"Who is {peer.welcome().auth_data.decode()}?"
        request_id = peer.next(commands.CloseProducer).request_id
        peer.send(commands.LookupResponse(request_id=request_id, error=3, message=said))

    with ScriptedBroker(script) as broker:
        connection = open_direct(broker, Auth(token="a-secret"))
        answer = ask(connection, commands.LookupResponse)
        connection.close()
    assert answer.message == "Who is <token>?"


def test_a_refusal_has_its_class_and_frees_everything():
    def script(peer: Peer) -> None:
        peer.next(commands.Connect)
        peer.send(commands.Error(request_id=0, error=3, message="no"))

    with ScriptedBroker(script) as broker, nothing_left_behind(), pytest.raises(Unauthorized):
        open_direct(broker, Auth(token="abc"))


def test_a_peer_that_does_not_answer_connect_times_out():
    with ScriptedBroker(lambda peer: peer.next(commands.Ping)) as broker, nothing_left_behind():
        started = time.monotonic()
        with pytest.raises(ConnectionLost, match="no answer"):
            open_direct(broker, timeout_s=0.3)
        assert time.monotonic() - started < 5


def test_answers_find_their_request_and_earlier_commands_are_kept():
    def script(peer: Peer) -> None:
        peer.welcome()
        request_id = peer.next(commands.CloseProducer).request_id
        peer.send(
            commands.CloseConsumer(consumer_id=0, request_id=0),
            commands.Success(request_id=request_id + 50),
            commands.Success(request_id=request_id),
        )
        peer.send(commands.ReachedEndOfTopic(consumer_id=0))
        error = commands.Error(
            request_id=peer.next(commands.CloseProducer).request_id, error=11, message="gone"
        )
        peer.send(error)

    with ScriptedBroker(script) as broker:
        connection = open_direct(broker)
        ask(connection)
        with pytest.raises(TopicNotFound, match=r"Asking: .*gone"):
            ask(connection)
        kept = [
            kind for kind in connection.receive(10)[1] if not isinstance(kind, commands.Success)
        ]
        assert [type(one) for one in kept] == [commands.CloseConsumer, commands.ReachedEndOfTopic]
        connection.close()


def test_a_request_without_an_answer_times_out_in_doubt():
    with ScriptedBroker(lambda peer: (peer.welcome(), peer.next(commands.Ping))) as broker:
        connection = open_direct(broker)
        with pytest.raises(RequestTimeout, match="Asking"):
            ask(connection, timeout_s=0.2)
        connection.close()


def test_unrequested_entries_are_an_error():
    def script(peer: Peer) -> None:
        peer.welcome()
        peer.next(commands.CloseProducer)
        peer.sock.sendall(ENTRY)
        peer.next()

    with ScriptedBroker(script) as broker:
        connection = open_direct(broker)
        with pytest.raises(ProtocolError, match="not requested"):
            ask(connection)
        connection.close()


def test_a_ping_is_answered_and_a_challenge_with_a_fresh_token():
    tokens = iter(["first", "second"])

    def script(peer: Peer) -> None:
        broker.received.append(peer.welcome().auth_data)
        peer.send(commands.Ping())
        broker.received.append(peer.next(commands.Pong))
        peer.send(commands.AuthChallenge())
        broker.received.append(peer.next(commands.AuthResponse).response.auth_data)
        peer.sock.sendall(ENTRY)

    with ScriptedBroker(script) as broker:
        connection = open_direct(broker, Auth(token=lambda: next(tokens)))
        entries = []
        while not entries:
            entries, _ = connection.receive(10)
        assert broker.received == [b"first", commands.Pong(), b"second"]
        assert [entry.id.entry for entry in entries] == [5]
        connection.close()


def test_pings_do_not_extend_the_timeout_of_receive(monkeypatch):
    def script(peer: Peer) -> None:
        peer.welcome()
        while True:
            peer.send(commands.Ping())
            peer.next(commands.Pong)

    with ScriptedBroker(script) as broker:
        connection = open_direct(broker)
        started = time.monotonic()
        while time.monotonic() < started + 0.5:
            entries, _ = connection.receive(started + 0.5 - time.monotonic())
            assert not entries
        assert time.monotonic() - started < 5
        connection.close()


def test_a_peer_that_does_not_answer_a_ping_counts_as_lost(monkeypatch):
    monkeypatch.setattr(blocking_module, "KEEP_ALIVE_S", 0.1)

    def script(peer: Peer) -> None:
        peer.welcome()
        broker.received.append(peer.next(commands.Ping))
        peer.next()

    with ScriptedBroker(script) as broker, nothing_left_behind():
        connection = open_direct(broker)
        with pytest.raises(ConnectionLost, match="is silent"):
            connection.receive(10)
        assert broker.received == [commands.Ping()]
        connection.close()


def be_silent(connection: BlockingConnection) -> None:
    """Let the last bytes have come a minute ago: longer than the pause until a ping is sent."""
    connection._received_at -= 60


def test_a_quiet_peer_that_answers_pings_is_kept():
    def script(peer: Peer) -> None:
        peer.welcome()
        while True:
            broker.received.append(peer.next(commands.Ping))
            peer.send(commands.Pong())

    with ScriptedBroker(script) as broker:
        connection = open_direct(broker)
        for _ in range(3):
            be_silent(connection)
            assert connection.receive(10) == ([], [commands.Pong()])
        assert broker.received == [commands.Ping()] * 3
        connection.close()


def test_after_a_long_pause_a_ping_is_sent_before_the_connection_counts_as_lost():
    def script(peer: Peer) -> None:
        peer.welcome()
        peer.next(commands.Ping)
        peer.sock.sendall(ENTRY)
        peer.next()

    with ScriptedBroker(script) as broker:
        connection = open_direct(broker)
        be_silent(connection)
        entries, _ = connection.receive(10)
        assert len(entries) == 1
        connection.close()


def test_complete_frames_are_returned_before_the_loss_of_the_connection():
    def script(peer: Peer) -> None:
        peer.welcome()
        peer.next(commands.Flow)
        peer.sock.sendall(ENTRY + ENTRY[:-1])

    with ScriptedBroker(script) as broker, nothing_left_behind():
        connection = open_direct(broker)
        connection.send(commands.Flow(consumer_id=0, permits=9))
        entries, _ = connection.receive(10)
        assert len(entries) == 1
        with pytest.raises(ConnectionLost, match="closed the connection"):
            connection.receive(10)
        connection.close()
        connection.close()


def test_large_amounts_are_received_in_few_calls():
    count = 400
    entry = frame(0, 5, body(metadata(), b"x" * 50_000))

    def script(peer: Peer) -> None:
        peer.welcome()
        peer.next(commands.Flow)
        peer.sock.sendall(entry * count)
        peer.next()

    with ScriptedBroker(script) as broker:
        connection = open_direct(broker)
        connection.send(commands.Flow(consumer_id=0, permits=count))
        got = receives = 0
        while got < count:
            got += len(connection.receive(10)[0])
            receives += 1
        assert got == count
        assert receives < count / 2
        connection.close()
