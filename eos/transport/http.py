"""One HTTP request, to the admin API or a token server: bounded in time and in size, and sent
nowhere else.

``urllib`` is no help here: it follows redirects anywhere, goes through what ``http_proxy`` names,
and counts its time-out anew for each byte.
"""

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
from eos.transport._connect import Peer, dial

_LENGTH: Final = re.compile(r"\s*[0-9]{1,18}\s*", re.ASCII)

MAX_ANSWER_BYTES: Final = 4 * 1024 * 1024
"""Thousands of open transactions fit, which is the longest answer that is asked for."""


@dataclass(frozen=True)
class HttpService:
    """Who is asked, for errors: what to call it, the option with its URL, what to check."""

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
        """The origin of ``url``.

        Raises:
            ValueError: it has none, or more than that names a user.
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
    """``path`` has its query; ``headers`` may hold secrets, and so may ``body``."""

    method: str
    path: str
    body: bytes | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class Response:
    """``location`` is where a redirect leads; ``date`` as the header has it."""

    status: int
    body: bytes
    date: str | None
    location: str | None


def perform(
    request: Request,
    whom: HttpService,
    origin: Origin,
    context: ssl.SSLContext | None,
    deadline: float,
) -> Response:
    """Ask once, straight (whatever proxy the environment names); redirects are the caller's.

    Raises:
        Unreachable: no connection by ``deadline`` (``time.monotonic``); nothing was asked.
        ConnectionLost: no whole answer by then.
        ConfigurationError: the certificate can't be verified.
        ProtocolError: it is no HTTP, or longer than ``MAX_ANSWER_BYTES``.
    """
    target = Peer(origin.host, origin.port, str(origin), whom.option)
    sock = dial(target, context if origin.tls else None, deadline)
    connection = http.client.HTTPConnection(origin.host, origin.port)
    connection.set_debuglevel(0)  # whatever the class has by now: it would print the headers
    connection.sock = sock
    headers = {"Accept": "*/*", "Connection": "close", **request.headers}
    try:
        with _cut_off_at(deadline, sock) as is_late:
            try:
                connection.request(request.method, request.path, request.body, headers)
                response = connection.getresponse()
                _check_length(response.headers.get_all("Content-Length", []))
                body = response.read(MAX_ANSWER_BYTES + 1)
                is_cut = len(body) <= MAX_ANSWER_BYTES and bool(response.length)
            except (OSError, http.client.HTTPException, ValueError) as error:
                if is_late() or isinstance(error, OSError | http.client.IncompleteRead):
                    raise _lost(whom, origin, is_late(), error) from None
                raise ProtocolError(
                    f"{whom.name} at {origin} does not speak HTTP: {type(error).__name__}.",
                    hint=f"Check the port in {whom.option}: {origin.port}.",
                ) from None
            if is_late() or is_cut:
                raise _lost(whom, origin, is_late(), None)
    finally:
        connection.close()
    if len(body) > MAX_ANSWER_BYTES:
        raise ProtocolError(
            f"{whom.name}'s answer to {request.path} is longer than {MAX_ANSWER_BYTES} bytes."
        )
    return Response(
        response.status, body, response.headers.get("Date"), response.headers.get("Location")
    )


def _check_length(said: list[str]) -> None:
    """``http.client`` reads to the end of the connection where it does not understand a length:
    then nobody would see that an answer was cut off."""
    if len({one.strip() for one in said}) > 1 or not all(_LENGTH.fullmatch(one) for one in said):
        raise http.client.HTTPException("Content-Length")


def _lost(
    whom: HttpService, origin: Origin, is_late: bool, error: Exception | None
) -> ConnectionLost:
    what = "it took too long" if is_late else f"{error or 'it broke off'}"
    return ConnectionLost(f"{whom.name} at {origin}: {what}.", hint=whom.hint)


class _Late:
    """Ends the socket at the deadline, whatever the other thread waits for on it.

    A time-out of the socket would begin anew with each byte that drips in.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.is_over = False

    def __call__(self) -> bool:
        return self.is_over

    def end(self) -> None:
        """Called by the timer."""
        self.is_over = True
        with contextlib.suppress(OSError, ValueError):
            # On an SSLSocket `shutdown` would drop the TLS state under the reader's feet.
            socket.socket.shutdown(self._sock, socket.SHUT_RDWR)


@contextmanager
def _cut_off_at(deadline: float, sock: socket.socket) -> Iterator[_Late]:
    late = _Late(sock)
    sock.settimeout(None)
    timer = threading.Timer(max(0.0, deadline - time.monotonic()), late.end)
    timer.daemon = True
    timer.start()
    try:
        yield late
    finally:
        timer.cancel()
        timer.join()  # the number of a closed socket may be another's by then
