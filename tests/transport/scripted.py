"""A peer that follows a script, for behaviour that a real broker can't be made to show."""

from __future__ import annotations

import contextlib
import gc
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator

from eos.transport.address import Address
from eos.wire import commands
from eos.wire.frames import FrameDecoder, encode_frame
from eos.wire.messages import WireMessage

CONNECTED = commands.Connected(server_version="scripted", protocol_version=21)


class Peer:
    """The broker's end of one connection."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._commands = self._read()

    def _read(self) -> Iterator[object]:
        decoder = FrameDecoder()
        while data := self.sock.recv(65536):
            yield from decoder.feed(data)

    def next(self, kind: type[WireMessage] = WireMessage) -> WireMessage:
        """The next command of ``kind``; others are skipped. EOFError at the end."""
        for command in self._commands:
            if isinstance(command, kind):
                return command
        raise EOFError

    def send(self, *answers: WireMessage) -> None:
        self.sock.sendall(b"".join(map(encode_frame, answers)))

    def welcome(self) -> commands.Connect:
        """Answer CONNECT, and return it."""
        connect = self.next(commands.Connect)
        self.send(CONNECTED)
        return connect


class ScriptedBroker:
    """Runs ``script`` for each connection, in its own thread; a context manager.

    Scripts may append to ``received``.
    """

    def __init__(self, script: Callable[[Peer], None]) -> None:
        self._script = script
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = Address("127.0.0.1", self._listener.getsockname()[1], tls=False)
        self.received: list[object] = []
        self.connections = 0
        self._peers: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def url(self) -> str:
        return str(self.address)

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._peers.append(sock)
            thread = threading.Thread(target=self._run, args=(sock,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _run(self, sock: socket.socket) -> None:
        with sock, contextlib.suppress(OSError, EOFError):
            self._script(Peer(sock))

    def __enter__(self) -> ScriptedBroker:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for sock in self._peers:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(timeout=5)


def wait_until(is_so: Callable[[], object], timeout_s: float = 30.0) -> None:
    """Return as soon as ``is_so()``; fail after ``timeout_s``."""
    deadline = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < deadline, "it did not come to be in time"
        time.sleep(0.005)


def readers(address: Address | None = None) -> int:
    """The number of reading threads of this process: of connections to ``address``, or of all."""
    name = f"eos-reader-{address.host_port if address else ''}"
    return sum(thread.name.startswith(name) for thread in threading.enumerate())


def open_files() -> int:
    """The number of open file descriptors of this process."""
    return len(os.listdir("/proc/self/fd"))


@contextlib.contextmanager
def nothing_left_behind() -> Iterator[None]:
    """Check that reading threads and file descriptors of the block are freed soon after it."""
    gc.collect()
    threads, files = readers(), open_files()
    yield
    wait_until(lambda: readers() <= threads)
    wait_until(lambda: open_files() <= files)
