"""A byte stream over TCP or TLS, and its writer of whole frames."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from eos.errors import RequestTimeout
from eos.transport._auth_methods import Credentials
from eos.transport._connect import Peer, connect
from eos.transport.address import Address
from eos.waiting import Future, begin
from eos.wire.frames import encode_frame
from eos.wire.messages import WireMessage

_RECV_BYTES: Final = 256 * 1024
_TLS_SEND_BYTES: Final = 256 * 1024
_SMALL_BYTES: Final = 4096
# The specification: "Both clients and brokers are sending Ping commands periodically and they will
# close the socket if a Pong response is not received within a timeout (default used by broker is
# 60s)." After so much silence a PING is sent; after as much again the connection counts as lost.
KEEP_ALIVE_S: Final = 30.0
SEND_STALL_S: Final = 30.0  # the connection is lost if the broker accepts no bytes for so long
WITHOUT_LIMIT: Final = -1.0

Chunk = bytes | memoryview
Received = TypeVar("Received", bytes, int)


class Stream:
    """An open byte stream for one reading and one writing thread; made by ``open_stream``."""

    # Both threads use one non-blocking socket and wait in ``poll`` without holding the lock.
    # All other socket calls hold it: after ``close`` the system may give the file descriptor to
    # another socket.

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._tls = isinstance(sock, ssl.SSLSocket)
        self._lock = threading.Lock()
        # Only the reading thread closes the socket, so its ``recv`` needs the lock only with TLS:
        # an SSL object must not be used by two threads at once.
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
        """``recv`` into ``target``; return the number of bytes."""
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
            TimeoutError: the peer accepted no bytes for ``timeout_s``. A frame may be incomplete:
                the stream can't be used any more.
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

    def takes(self, num_bytes: int) -> bool:
        """Whether so much can be sent without waiting."""
        # While the system reports room, at least a third of its buffer is free.
        fileno = self._sock.fileno()
        if fileno < 0:
            return True  # to send fails at once
        poll = select.poll()
        poll.register(fileno, select.POLLOUT)
        return num_bytes <= _SMALL_BYTES and bool(poll.poll(0))

    def shutdown(self) -> None:
        """End the stream and wake up the threads that wait on it. ``close`` frees it later."""
        with contextlib.suppress(OSError, ValueError), self._lock:
            # SSLSocket.shutdown would drop the TLS state while the reading thread uses it.
            socket.socket.shutdown(self._sock, socket.SHUT_RDWR)

    def close(self) -> None:
        """Free the socket. Only the reading thread may call this, after its last ``recv``."""
        with contextlib.suppress(OSError), self._lock:
            self._sock.close()


def open_stream(address: Address, credentials: Credentials, timeout_s: float) -> Stream:
    """Connect to ``address``; with TLS also verify the certificate and its host name.

    Raises:
        ConnectionLost: no connection within ``timeout_s``.
        ConfigurationError: the broker's certificate can't be verified, or the client's TLS files
            can't be loaded.
    """
    deadline = time.monotonic() + timeout_s
    context = credentials.ssl_context() if address.tls else None
    peer = Peer(address.host, address.port, str(address), "service_url")
    return Stream(connect(peer, context, deadline))


class FrameWriter:
    """Writes whole frames to ``stream``, for several threads; nothing more after a failed write."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self._broken = False
        self._queue_lock = threading.Lock()
        self._queued: dict[object, bytes] = {}

    def write(self, parts: Sequence[Chunk], *, wait_s: float = WITHOUT_LIMIT) -> None:
        """Send ``parts`` after all earlier commands, without another thread's bytes between them.

        ``wait_s``: how long to wait while other threads send.

        Raises:
            RequestTimeout: other threads sent for all of ``wait_s``; nothing of ``parts`` was sent.
            OSError: the stream broke, now or earlier.
        """
        if not self._lock.acquire(timeout=wait_s):
            raise RequestTimeout(f"Other threads were sending for all of {wait_s:g} s.")
        self._write_and_release(parts)
        self._write_queued()

    def write_soon(self, command: WireMessage, *, once: bool = False) -> None:
        """Send ``command`` before all later ones. Never waits; if the stream breaks, it ends.

        ``once``: instead of an earlier command of its type, if that was not sent yet.
        """
        key = type(command) if once else object()
        with self._queue_lock:
            self._queued[key] = encode_frame(command)
        if not self._lock.acquire(blocking=False):
            return  # the thread that holds it sends this, too
        with self._queue_lock:
            size = sum(map(len, self._queued.values()))
        if self._stream.takes(size):
            self._write_rest()
            return
        try:
            begin(self._write_rest, Future())
        except RuntimeError:  # there are too many threads
            self._write_rest()

    def _write_rest(self) -> None:
        try:
            self._write_and_release(())
            self._write_queued()
        except OSError:
            self._stream.shutdown()  # its reading thread notices

    def _write_queued(self) -> None:
        # A thread that holds the lock calls this after releasing it, so no command stays queued.
        while self._queued and self._lock.acquire(blocking=False):
            self._write_and_release(())

    def give_up(self) -> None:
        """Raise ``OSError`` in all pending and all later writes: the stream is shut down."""
        # Ctrl-C between ``acquire`` and ``_write_and_release`` leaves the lock taken. Each
        # pending thread that gets it now finds the stream broken, and releases it for the next one.
        self._broken = True
        self._release()

    def _release(self) -> None:
        with contextlib.suppress(RuntimeError):  # ``give_up`` may have released it
            self._lock.release()

    def _write_and_release(self, parts: Sequence[Chunk]) -> None:
        whole = False
        try:
            if self._broken:  # the broker would take this frame for the rest of that one
                raise OSError("an earlier send was interrupted")
            with self._queue_lock:
                earlier = [*self._queued.values()]
                self._queued.clear()
            self._stream.send([*earlier, *parts], SEND_STALL_S)
            whole = True
        finally:  # also on Ctrl-C
            if not whole:
                self._broken = True
            self._release()
