"""A connection facing a scripted peer: what no real broker can be made to do."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable

import pytest

from eos.client import PulsarClient
from eos.client.lookup import Lookup
from eos.errors import EosError, ProtocolError, RequestTimeout, Unauthorized
from eos.transport import connection as connection_module
from eos.transport.address import Address
from eos.transport.connection import Connection
from eos.transport.security import Security
from eos.wire import commands
from eos.wire.frames import FrameDecoder, encode_frame

WELCOME = encode_frame(commands.Connected(server_version="scripted", protocol_version=21))


@pytest.fixture
def serve():
    """Starts a server that runs a script for each connection; gives its address."""
    listeners = []

    def start(script: Callable[[socket.socket], None]) -> Address:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)

        def accept() -> None:
            while True:
                try:
                    peer, _ = listener.accept()
                except OSError:
                    return
                with peer:
                    try:
                        script(peer)
                    except OSError:
                        continue

        threading.Thread(target=accept, daemon=True).start()
        return Address("127.0.0.1", listener.getsockname()[1], tls=False)

    yield start
    for listener in listeners:
        listener.close()


def open_connection(address: Address, security: Security | None = None) -> Connection:
    return Connection.open(address, security or Security(), timeout_s=3)


def await_command(peer: socket.socket, kind: type) -> object:
    """The next command of ``kind`` that the client sends."""
    decoder = FrameDecoder()
    while data := peer.recv(65536):
        for command in decoder.feed(data):
            if isinstance(command, kind):
                return command
    raise AssertionError(f"no {kind.__name__} came")


def assert_freed(opened: Callable[[], object], error: type[BaseException] = EosError) -> None:
    """``opened`` fails with ``error``, and leaves no thread and no file behind."""

    def readers() -> int:
        return sum(thread.name.startswith("eos-reader") for thread in threading.enumerate())

    def files() -> int:
        return len(os.listdir("/proc/self/fd"))

    threads, before = readers(), files()
    with pytest.raises(error):
        opened()
    deadline = time.monotonic() + 5
    while (readers() > threads or files() > before + 1) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert readers() <= threads
    assert files() <= before + 1  # the server's own end may still be open


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\x00\x00\x00\x08\x00\x00\x00\x64abcd",
        b"\xff" * 1000,
        WELCOME[:-3],
        encode_frame(commands.SendReceipt(producer_id=1, sequence_id=1)),
    ],
    ids=["nothing", "http", "long command", "ff", "cut welcome", "wrong answer"],
)
def test_a_peer_that_speaks_nonsense_is_left_with_an_error_and_nothing_stays_open(serve, garbage):
    address = serve(lambda peer: peer.sendall(garbage))
    assert_freed(lambda: open_connection(address))


def test_a_peer_that_stays_silent_is_given_up(serve):
    wait = threading.Event()
    address = serve(lambda peer: wait.wait(10))
    started = time.monotonic()
    with pytest.raises(RequestTimeout):
        Connection.open(address, Security(), timeout_s=0.5)
    assert time.monotonic() - started < 5
    wait.set()


def test_a_ping_is_answered(serve):
    ponged = threading.Event()

    def script(peer: socket.socket) -> None:
        await_command(peer, commands.Connect)
        peer.sendall(WELCOME + encode_frame(commands.Ping()))
        await_command(peer, commands.Pong)
        ponged.set()

    connection = open_connection(serve(script))
    assert ponged.wait(5)
    connection.close()


def test_a_peer_that_does_not_answer_a_ping_counts_as_lost(serve, monkeypatch):
    monkeypatch.setattr(connection_module, "KEEP_ALIVE_S", 0.2)
    wait = threading.Event()

    def script(peer: socket.socket) -> None:
        peer.sendall(WELCOME)
        await_command(peer, commands.Ping)
        wait.wait(10)

    connection = open_connection(serve(script))
    deadline = time.monotonic() + 5
    while connection.is_alive and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not connection.is_alive
    wait.set()


def test_an_auth_challenge_is_answered_with_a_fresh_token(serve):
    answers = []
    tokens = iter(["first", "second"])

    def script(peer: socket.socket) -> None:
        connect = await_command(peer, commands.Connect)
        answers.append(connect.auth_data)
        peer.sendall(WELCOME + encode_frame(commands.AuthChallenge()))
        answers.append(await_command(peer, commands.AuthResponse).response.auth_data)
        done.set()

    done = threading.Event()
    connection = open_connection(serve(script), Security(token=lambda: next(tokens)))
    assert done.wait(5)
    assert answers == [b"first", b"second"]
    connection.close()


def test_a_refusal_of_the_connection_is_told_without_the_token(serve):
    refusal = commands.Error(request_id=2**64 - 1, error=3, message="no such token")

    def script(peer: socket.socket) -> None:
        await_command(peer, commands.Connect)
        peer.sendall(encode_frame(refusal))

    with pytest.raises(Unauthorized) as caught:
        open_connection(serve(script), Security(token="hunter2"))
    assert "no such token" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_redirects_are_followed_and_a_circle_of_them_ends(serve):
    def script(peer: socket.socket) -> None:
        peer.sendall(WELCOME)
        decoder = FrameDecoder()
        while data := peer.recv(65536):
            for command in decoder.feed(data):
                if isinstance(command, commands.Lookup):
                    asked.append(command.authoritative)
                    answer = commands.LookupResponse(
                        request_id=command.request_id,
                        broker_url=str(address),
                        response=0 if len(asked) != 3 else 1,
                        authoritative=True,
                    )
                    peer.sendall(encode_frame(answer))

    asked: list[bool] = []
    address = serve(script)
    with PulsarClient(str(address), timeout_s=3) as client:
        client.lookup.broker_of("persistent://public/default/t")
        assert asked == [False, True, True]
        with pytest.raises(EosError, match="redirects"):
            client.lookup.broker_of("persistent://public/default/t")


def test_a_look_up_that_leaves_tls_is_not_followed():
    """Our token would travel in the clear."""
    asked = Address("broker", 6651, tls=True)
    answer = commands.LookupResponse(
        request_id=1, broker_url_tls="pulsar://broker:6650", response=1, authoritative=True
    )
    lookup = Lookup(str(asked), Security(token="hunter2"), timeout_s=1)
    with pytest.raises(ProtocolError, match="left TLS"):
        lookup._follow(answer, asked)
