"""Performs one HTTP request, to the admin API or a token server, bounded in time and size."""

from __future__ import annotations

import contextlib
import http.client
import re
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, Self
from urllib.parse import urlsplit

from eos.errors import ConnectionLost, ProtocolError
from eos.transport._connect import Peer, connect

_LENGTH: Final = re.compile(r"\s*[0-9]{1,18}\s*", re.ASCII)

# Enough for thousands of open transactions, the longest answer.
MAX_ANSWER_BYTES: Final = 4 * 1024 * 1024


@dataclass(frozen=True)
class HttpService:
    """The kind of server, for errors: its name, the option with its URL, and a hint."""

    name: str
    option: str
    hint: str


@dataclass(frozen=True)
class Origin:
    """Scheme, host and port."""

    tls: bool
    host: str
    port: int

    @classmethod
    def parse(cls, url: str) -> Self:
        """Return the origin of ``url``.

        Raises:
            ValueError: ``url`` has no origin, or contains a user.
        """
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
            raise ValueError("not an http(s) URL of a host")
        tls = parts.scheme == "https"
        return cls(tls, parts.hostname, parts.port or (443 if tls else 80))

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}"


@dataclass(frozen=True)
class Request:
    """A request. ``path`` includes the query; ``headers`` and ``body`` may contain secrets."""

    method: str
    path: str
    body: bytes | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class Response:
    """A response. ``location``: the target of a redirect; ``date``: the header's text."""

    status: int
    body: bytes
    date: str | None
    location: str | None


def perform(
    request: Request,
    service: HttpService,
    origin: Origin,
    context: ssl.SSLContext | None,
    deadline: float,
) -> Response:
    """Send ``request`` once, without a proxy and without following redirects.

    Raises:
        Unreachable: no connection by ``deadline`` (``time.monotonic``); nothing was sent.
        ConnectionLost: no complete answer by ``deadline``.
        ConfigurationError: the certificate can't be verified.
        ProtocolError: the answer is not HTTP, or longer than ``MAX_ANSWER_BYTES``.
    """
    target = Peer(origin.host, origin.port, str(origin), service.option)
    sock = connect(target, context if origin.tls else None, deadline)
    # Not ``urllib``: it follows redirects to any host, uses the proxy in ``http_proxy``, and
    # restarts its timeout with each byte.
    connection = http.client.HTTPConnection(origin.host, origin.port)
    connection.set_debuglevel(0)  # a debug level set on the class would print the headers
    connection.sock = sock
    headers = {"Accept": "*/*", "Connection": "close", **request.headers}
    try:
        with _shut_down_at(deadline, sock) as is_late:
            try:
                connection.request(request.method, request.path, request.body, headers)
                response = connection.getresponse()
                _check_length(response.headers.get_all("Content-Length", []))
                body = response.read(MAX_ANSWER_BYTES + 1)
                is_cut = len(body) <= MAX_ANSWER_BYTES and bool(response.length)
            except (OSError, http.client.HTTPException, ValueError) as error:
                if is_late() or isinstance(error, OSError | http.client.IncompleteRead):
                    raise _lost(service, origin, is_late(), error) from None
                raise ProtocolError(
                    f"{service.name} at {origin} does not speak HTTP: {type(error).__name__}.",
                    hint=f"Check the port in {service.option}: {origin.port}.",
                ) from None
            if is_late() or is_cut:
                raise _lost(service, origin, is_late(), None)
    finally:
        connection.close()
    if len(body) > MAX_ANSWER_BYTES:
        raise ProtocolError(
            f"{service.name}'s answer to {request.path} is longer than {MAX_ANSWER_BYTES} bytes."
        )
    return Response(
        response.status, body, response.headers.get("Date"), response.headers.get("Location")
    )


def _check_length(values: list[str]) -> None:
    # With an invalid header ``http.client`` reads until the connection closes, and a truncated
    # answer would not be noticed.
    if len({one.strip() for one in values}) > 1 or not all(map(_LENGTH.fullmatch, values)):
        raise http.client.HTTPException("Content-Length")


def _lost(
    service: HttpService, origin: Origin, is_late: bool, error: Exception | None
) -> ConnectionLost:
    reason = "it took too long" if is_late else f"{error or 'the answer is incomplete'}"
    return ConnectionLost(f"{service.name} at {origin}: {reason}.", hint=service.hint)


class _DeadlineTimer:
    """Shuts a socket down at a deadline, while another thread waits on it."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.is_over = False

    def __call__(self) -> bool:
        return self.is_over

    def end(self) -> None:
        self.is_over = True
        with contextlib.suppress(OSError, ValueError):
            # SSLSocket.shutdown would drop the TLS state while the reading thread uses it.
            socket.socket.shutdown(self._sock, socket.SHUT_RDWR)


@contextmanager
def _shut_down_at(deadline: float, sock: socket.socket) -> Iterator[_DeadlineTimer]:
    late = _DeadlineTimer(sock)
    sock.settimeout(None)  # it would restart with each byte
    timer = threading.Timer(max(0.0, deadline - time.monotonic()), late.end)
    timer.daemon = True
    timer.start()
    try:
        yield late
    finally:
        timer.cancel()
        timer.join()  # after close, the file descriptor may belong to another socket
