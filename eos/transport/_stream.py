"""A byte stream over TCP or TLS, for one reading and one writing thread at a time.

Both threads use one non-blocking socket and wait in ``poll`` without holding the lock. Every
socket call except ``recv`` holds the lock: after ``close`` the system may give the file descriptor
to another socket. With TLS ``recv`` holds it too: an SSL object must not be used by two threads at
once.
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

from eos.transport._connect import Peer, connect
from eos.transport.address import Address
from eos.transport.auth import Auth

_RECV_BYTES: Final = 256 * 1024
_TLS_SEND_BYTES: Final = 256 * 1024

Chunk = bytes | memoryview
Received = TypeVar("Received", bytes, int)


class Stream:
    """An open byte stream, created by ``open_stream``."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._tls = isinstance(sock, ssl.SSLSocket)
        self._lock = threading.Lock()
        # Only the reading thread closes the socket, so its ``recv`` needs the lock only with TLS.
        self._recv_lock = self._lock if self._tls else contextlib.nullcontext()
        sock.setblocking(False)

    def recv(self, timeout_s: float) -> bytes:
        """Return the next bytes; empty when the peer closed the stream.

        Raises:
            TimeoutError: nothing arrived within ``timeout_s``.
            OSError: the stream broke.
        """
        return self._receive(lambda: self._sock.recv(_RECV_BYTES), timeout_s)

    def recv_into(self, target: memoryview, timeout_s: float) -> int:
        """Read the next bytes into ``target`` and return their number; 0 when the peer closed the
        stream.

        Raises:
            TimeoutError: nothing arrived within ``timeout_s``.
            OSError: the stream broke.
        """
        return self._receive(lambda: self._sock.recv_into(target), timeout_s)

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
        """Send all ``parts`` in order, without copying them into one buffer.

        Raises:
            TimeoutError: the peer accepted no bytes for ``timeout_s``. A frame may be incomplete,
                so the stream can't be used any more.
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
        """End the stream and wake up the threads that wait on it. ``close`` frees it later."""
        with contextlib.suppress(OSError, ValueError), self._lock:
            # SSLSocket.shutdown would drop the TLS state while the reading thread uses it.
            socket.socket.shutdown(self._sock, socket.SHUT_RDWR)

    def close(self) -> None:
        """Free the socket. Only the reading thread may call this, after its last ``recv``."""
        with contextlib.suppress(OSError), self._lock:
            self._sock.close()


def open_stream(address: Address, auth: Auth, timeout_s: float) -> Stream:
    """Connect to ``address``; with TLS also verify the certificate and its host name.

    Raises:
        ConnectionLost: no connection within ``timeout_s``.
        ConfigurationError: the broker's certificate can't be verified, or the client's TLS files
            can't be loaded.
    """
    deadline = time.monotonic() + timeout_s
    context = auth.ssl_context() if address.tls else None
    return Stream(connect(Peer.of_broker(address), context, deadline))
