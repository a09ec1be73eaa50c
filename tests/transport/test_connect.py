"""Host names with several addresses: each is tried, and a dead one delays the others little."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator

import pytest

from eos.client import PulsarClient
from eos.errors import ConnectionLost, Unreachable
from eos.transport import _connect
from eos.transport._connect import connect
from eos.wire import commands
from tests.transport.scripted import Peer, ScriptedBroker, nothing_left_behind

NAME = "broker.example"
REFUSES, SILENT, OTHER_SILENT, ANSWERS = "127.0.0.8", "127.0.0.7", "127.0.0.6", "127.0.0.9"


@pytest.fixture
def port() -> Iterator[int]:
    """A port at which ``ANSWERS`` accepts, ``SILENT`` and ``OTHER_SILENT`` drop what they receive,
    and all others refuse."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.create_server((ANSWERS, 0)))
        port = int(server.getsockname()[1])
        for host in (SILENT, OTHER_SILENT):
            # Linux drops requests to connect while the queue of accepted connections is full.
            stack.enter_context(socket.create_server((host, port), backlog=0))
            stack.enter_context(socket.create_connection((host, port), 1.0))
        yield port


@pytest.fixture
def resolve(monkeypatch):
    """``resolve(address, ...)``: these are the addresses of every name."""

    def answer(*hosts: str) -> None:
        def getaddrinfo(_: str, port: int, **__: object) -> list[tuple[object, ...]]:
            return [
                (socket.AF_INET6, socket.SOCK_STREAM, 6, "", (host, port, 0, 0))
                if ":" in host
                else (socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port))
                for host in hosts
            ]

        monkeypatch.setattr(_connect.socket, "getaddrinfo", getaddrinfo)

    return answer


def open_socket(port: int, timeout_s: float) -> socket.socket:
    peer = _connect.Peer(NAME, port, f"pulsar://{NAME}:{port}", "service_url")
    return connect(peer, None, time.monotonic() + timeout_s)


@pytest.mark.parametrize(
    "dead", [(), (REFUSES,), (SILENT,), (SILENT, OTHER_SILENT), (REFUSES, SILENT), ("100::1",)]
)
def test_the_first_address_that_answers_is_used(port, resolve, dead):
    resolve(*dead, ANSWERS)
    started = time.monotonic()
    with nothing_left_behind():
        with open_socket(port, 20.0) as sock:
            assert sock.getpeername() == (ANSWERS, port)
            assert sock.gettimeout() > 0, "reads wait for an answer"
        assert time.monotonic() - started < 15.0, "the other addresses do not share the time"


def test_an_address_that_answers_late_is_used_if_the_others_refuse(port, resolve, monkeypatch):
    """The head start is no time limit."""
    monkeypatch.setattr(_connect, "_HEAD_START_S", 0.0)
    resolve(ANSWERS, REFUSES, REFUSES)
    with open_socket(port, 20.0) as sock:
        assert sock.getpeername() == (ANSWERS, port)


def test_the_error_names_each_address_if_none_answers(port, resolve):
    resolve(REFUSES, SILENT)
    started = time.monotonic()
    said = rf"{NAME}:{port}: {REFUSES}: .*Connection refused; {SILENT}: timed out\."
    with nothing_left_behind(), pytest.raises(Unreachable, match=said):
        open_socket(port, 1.0)
    assert 0.9 < time.monotonic() - started < 15.0


def test_the_error_of_a_single_address_is_that_of_the_system(resolve, port):
    resolve(REFUSES)
    with pytest.raises(Unreachable, match=rf"{NAME}:{port}: \[Errno 111\] Connection refused\. "):
        open_socket(port, 5.0)


def test_a_name_that_is_unknown_is_an_error_of_the_name(monkeypatch):
    def fail(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(_connect.socket, "getaddrinfo", fail)
    said = rf"{NAME}:6650: its host name can't be resolved: Name or .* in service_url.* DNS"
    unknown = PulsarClient(f"pulsar://{NAME}", timeout_s=5)
    with unknown as client, pytest.raises(ConnectionLost, match=said):
        client.coordinators.count()


def test_a_client_finds_the_broker_at_the_second_address(resolve):
    def script(peer: Peer) -> None:
        peer.welcome()
        peer.next(commands.Ping)

    with ScriptedBroker(script) as broker:
        resolve(REFUSES, broker.address.host)
        url = f"pulsar://{NAME}:{broker.address.port}"
        with PulsarClient(url, timeout_s=5) as client:
            assert client.lookup.any_broker().is_alive
