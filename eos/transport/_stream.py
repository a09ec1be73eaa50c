"""Bytes over TCP or TLS, for one reading and one writing thread at a time.

Both threads work on one non-blocking socket and wait in ``poll``, outside of any lock. Every call
on the socket that is not ``recv`` holds a lock, so that none of them can hit a number that the
system has given to another socket since ``close``. With TLS ``recv`` holds it too: an SSL object
is not safe for a reader and a writer at once.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from eos.transport._connect import Peer, dial
from eos.transport.address import Address
from eos.transport.auth import Auth

_RECV_BYTES: Final = 256 * 1024
_TLS_SEND_BYTES: Final = 256 * 1024

Chunk = bytes | memoryview
Received = TypeVar("Received", bytes, int)


class Stream:
    """An open byte stream. Made by ``open_stream``."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._tls = isinstance(sock, ssl.SSLSocket)
        self._lock = threading.Lock()
        # Only the reader closes, so its own calls need the lock for TLS only.
        self._recv_lock = self._lock if self._tls else contextlib.nullcontext()
        sock.setblocking(False)

    def recv(self, timeout_s: float) -> bytes:
        """The next bytes; empty when the peer closed the stream.

        Raises:
            TimeoutError: nothing came within ``timeout_s``.
            OSError: the stream broke.
        """
        return self._receive(lambda: self._sock.recv(_RECV_BYTES), timeout_s)

    def recv_into(self, room: memoryview, timeout_s: float) -> int:
        """Put the next bytes into ``room``; how many. 0 when the peer closed the stream.

        Raises:
            TimeoutError: nothing came within ``timeout_s``.
            OSError: the stream broke.
        """
        return self._receive(lambda: self._sock.recv_into(room), timeout_s)

    def _receive(self, receive: Callable[[], Received], timeout_s: float) -> Received:
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                with self._recv_lock:
                    return receive()
            except (BlockingIOError, ssl.SSLWantReadError):
                self._wait(select.POLLIN, deadline)
            except ssl.SSLWantWriteError:
                self._wait(select.POLLOUT, deadline)

    def send(self, parts: Sequence[Chunk], timeout_s: float) -> None:
        """Send all ``parts``, one after the other, without joining them.

        Raises:
            TimeoutError: the peer took no bytes for ``timeout_s``; a frame may be cut in two, so
                the stream is useless from here on.
            OSError: the stream broke.
        """
        views = [memoryview(part).cast("B") for part in parts if len(part)]
        while views:
            deadline = time.monotonic() + timeout_s
            sent = self._send_some(views, deadline)
            while views and sent >= len(views[0]):
                sent -= len(views.pop(0))
            if sent:
                views[0] = views[0][sent:]

    def _send_some(self, views: list[memoryview], deadline: float) -> int:
        while True:
            try:
                with self._lock:
                    if self._tls:
                        return self._sock.send(views[0][:_TLS_SEND_BYTES])
                    return self._sock.sendmsg(views)
            except (BlockingIOError, ssl.SSLWantWriteError):
                self._wait(select.POLLOUT, deadline)
            except ssl.SSLWantReadError:
                self._wait(select.POLLIN, deadline)

    def _wait(self, event: int, deadline: float) -> None:
        fileno = self._sock.fileno()
        if fileno < 0:
            raise OSError("the stream is closed")
        poll = select.poll()
        poll.register(fileno, event)
        if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            raise TimeoutError("the peer is silent" if event & select.POLLIN else "the peer stalls")

    def shutdown(self) -> None:
        """End the stream: whoever waits on it wakes up. ``close`` frees it later."""
        with contextlib.suppress(OSError, ValueError), self._lock:
            # On an SSLSocket `shutdown` would drop the TLS state under the reader's feet.
            socket.socket.shutdown(self._sock, socket.SHUT_RDWR)

    def close(self) -> None:
        """Free the socket. Only the reading thread calls it, after its last ``recv``."""
        with contextlib.suppress(OSError), self._lock:
            self._sock.close()


def open_stream(address: Address, auth: Auth, timeout_s: float) -> Stream:
    """Connect to ``address``; with TLS also verify the certificate and its host name.

    Raises:
        ConnectionLost: no connection within ``timeout_s``.
        ConfigurationError: the broker's certificate can't be verified, or our files are wrong.
    """
    deadline = time.monotonic() + timeout_s
    context = auth.ssl_context() if address.tls else None
    return Stream(dial(Peer.of_broker(address), context, deadline))
