"""A balancer of TCP connections, as in front of the brokers of many clusters."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from eos.transport.address import Address, parse_service_url

HOST = "127.0.0.1"


@dataclass
class Balancer:
    """Gives each connection to the next target; it does not check whether that is alive."""

    targets: list[Address]
    service_url: str
    used: list[Address] = field(default_factory=list)
    """The target of each connection."""


@contextlib.contextmanager
def balancer(service_urls: Sequence[str]) -> Iterator[Balancer]:
    """A running balancer in front of these brokers."""
    targets = [address for url in service_urls for address in parse_service_url(url)]
    with socket.create_server((HOST, 0)) as server:
        running = Balancer(targets, f"pulsar://{HOST}:{server.getsockname()[1]}")
        threading.Thread(target=_serve, args=(server, running), daemon=True).start()
        try:
            yield running
        finally:
            with contextlib.suppress(OSError):
                server.shutdown(socket.SHUT_RDWR)


def _serve(server: socket.socket, running: Balancer) -> None:
    with contextlib.suppress(OSError):  # it was closed
        while True:
            came, _ = server.accept()
            target = running.targets[len(running.used) % len(running.targets)]
            running.used.append(target)
            try:
                goes = socket.create_connection((target.host, target.port))
            except OSError:
                came.close()
                continue
            for one, other in ((came, goes), (goes, came)):
                threading.Thread(target=copy, args=(one, other), daemon=True).start()


def copy(source: socket.socket, sink: socket.socket) -> None:
    """Copy ``source`` to ``sink`` until one of them ends; then end both."""
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    for one in (source, sink):
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
