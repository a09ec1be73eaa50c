"""Brokers that a TLS router distinguishes by the host name in the handshake (SNI).

No option is needed if the brokers' advertised names resolve to the router.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping

import pytest
import trustme

from eos.client import PulsarClient
from eos.errors import Untrusted
from eos.transport import _connect
from eos.transport.auth import Auth
from eos.wire import commands
from tests.support.balancer import HOST, copy
from tests.transport.scripted import Peer, ScriptedBroker

ENTRY, OWNER = "entry.example", "owner.example"


@contextlib.contextmanager
def router(ports: Mapping[str, int]) -> Iterator[int]:
    """Forward each connection to the port of the name that its first packet has."""

    def serve(server: socket.socket) -> None:
        with contextlib.suppress(OSError):  # it was closed
            while True:
                came, _ = server.accept()
                hello = came.recv(4096, socket.MSG_PEEK)
                (port,) = (port for name, port in ports.items() if name.encode() in hello)
                goes = socket.create_connection((HOST, port))
                for one, other in ((came, goes), (goes, came)):
                    threading.Thread(target=copy, args=(one, other), daemon=True).start()

    with socket.create_server((HOST, 0)) as server:
        threading.Thread(target=serve, args=(server,), daemon=True).start()
        try:
            yield int(server.getsockname()[1])
        finally:
            with contextlib.suppress(OSError):
                server.shutdown(socket.SHUT_RDWR)


def speaking_tls(
    authority: trustme.CA, name: str, answer: Callable[[int], commands.LookupResponse]
) -> Callable[[Peer], None]:
    """A broker with a certificate for ``name``, which gives this answer to look-ups."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(name).configure_cert(context)

    def script(peer: Peer) -> None:
        with context.wrap_socket(peer.sock, server_side=True) as sock:
            tls = Peer(sock)
            tls.welcome()
            while True:
                tls.send(answer(tls.next(commands.Lookup).request_id))

    return script


@pytest.mark.parametrize(("owner", "error"), [(OWNER, None), ("other.example", Untrusted)])
def test_each_connection_names_its_broker_to_the_router(tmp_path, monkeypatch, owner, error):
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")

    def lead_to_owner(request_id: int) -> commands.LookupResponse:
        url = f"pulsar+ssl://{OWNER}:{port}"
        return commands.LookupResponse(request_id=request_id, response=1, broker_url_tls=url)

    def resolve(name: str, port: int, *_: object, **__: object) -> list[tuple[object, ...]]:
        assert name in (ENTRY, OWNER, HOST)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (HOST, port))]

    monkeypatch.setattr(_connect.socket, "getaddrinfo", resolve)
    with (
        ScriptedBroker(speaking_tls(authority, ENTRY, lead_to_owner)) as first,
        ScriptedBroker(speaking_tls(authority, owner, lead_to_owner)) as second,
        router({ENTRY: first.address.port, OWNER: second.address.port}) as port,
        PulsarClient(
            f"pulsar+ssl://{ENTRY}:{port}",
            auth=Auth(tls_trust_certs_file=str(tmp_path / "ca.pem")),
            timeout_s=10,
        ) as client,
    ):
        if error is None:
            assert client.lookup.broker_of("persistent://public/default/t").address.host == OWNER
        else:
            with pytest.raises(error, match="mismatch"):
                client.lookup.broker_of("persistent://public/default/t")
        assert (first.connections, second.connections) == (1, 1)
