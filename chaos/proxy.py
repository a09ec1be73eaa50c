"""A proxy between any Pulsar client and a real broker that can lose, cut, hold and forge.

It is a Pulsar proxy to its clients: it answers every look-up with "through me", so that all
connections of a client pass here. Faults are named by command; each says how often it fires, and
counts what it did, so that a test can prove that its fault really happened.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from eos.errors import ProtocolError
from eos.transport.address import parse_service_url
from eos.wire import commands
from eos.wire.frames import FrameDecoder, encode_frame
from eos.wire.messages import Message


class Verdict(Enum):
    """What happens to a frame that a fault caught."""

    PASS = "pass it on"  # noqa: S105 - no password
    DROP = "lose it; the connection stays"
    CUT = "lose it, and cut the connection"
    CUT_AFTER = "pass it on, then cut the connection"
    CUT_WITHIN = "pass half of it on, then cut the connection"


@dataclass(frozen=True)
class Replace:
    """Pass ``command`` on in the place of what was caught."""

    command: Message


Rule = Callable[[Any], "Verdict | Replace | Message"]
"""Sees the command; a verdict, or a command that answers its sender in the receiver's place."""


@dataclass
class Fault:
    """A rule for one kind of command. ``fired`` is set when it first acted."""

    kind: type[Message]
    rule: Rule
    times: int
    count: int = 0
    fired: threading.Event = field(default_factory=threading.Event)


class FaultProxy:
    """Listens on a free port of this machine; a context manager.

    ``service_url`` is what clients are given in the place of the broker's.
    """

    def __init__(self, broker_url: str) -> None:
        (self._broker,) = parse_service_url(broker_url)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._faults: list[Fault] = []
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._closed = False
        threading.Thread(target=self._accept, name="fault-proxy", daemon=True).start()

    @property
    def service_url(self) -> str:
        """``pulsar://127.0.0.1:port``."""
        return f"pulsar://127.0.0.1:{self._listener.getsockname()[1]}"

    @contextmanager
    def fault(
        self, kind: type[Message], rule: Rule | Verdict | Replace | Message, *, times: int = 1
    ) -> Iterator[Fault]:
        """Let ``rule`` decide about the next ``times`` commands of ``kind``, either way."""
        decide: Rule = rule if callable(rule) else lambda _: rule
        fault = Fault(kind, decide, times)
        with self._lock:
            self._faults.append(fault)
        try:
            yield fault
        finally:
            with self._lock:
                self._faults.remove(fault)

    def cut_all(self) -> None:
        """Cut every connection that is open now; new ones are accepted."""
        with self._lock:
            sockets = list(self._sockets)
        for sock in sockets:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Stop listening and cut all connections."""
        self._closed = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut_all()

    def __enter__(self) -> FaultProxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                broker = socket.create_connection((self._broker.host, self._broker.port), 10)
            except OSError:
                client.close()
                continue
            broker.settimeout(None)
            for source, target in ((client, broker), (broker, client)):
                source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self._pump, args=(source, target), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with self._lock:
            self._sockets.add(source)
        try:
            for frame in _frames(source):
                if not self._handle(frame, source, target):
                    break
        except (OSError, ProtocolError):
            pass
        finally:
            with self._lock:
                self._sockets.discard(source)
            for sock in (source, target):
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)
            source.close()

    def _handle(self, frame: bytes, source: socket.socket, target: socket.socket) -> bool:
        """Deal with one frame; False when the connection is to be cut."""
        (command,) = FrameDecoder(max_frame_bytes=1 << 30).feed(frame)
        verdict = self._judge(command)
        if isinstance(verdict, Message):
            source.sendall(encode_frame(verdict))
            return True
        if isinstance(verdict, Replace):
            target.sendall(encode_frame(verdict.command))
            return True
        if isinstance(command, commands.LookupResponse):
            frame = encode_frame(replace(command, proxy_through_service_url=True))
        if verdict is Verdict.CUT_WITHIN:
            target.sendall(frame[: len(frame) // 2])
        elif verdict in (Verdict.PASS, Verdict.CUT_AFTER):
            target.sendall(frame)
        return verdict in (Verdict.PASS, Verdict.DROP)

    def _judge(self, command: object) -> Verdict | Replace | Message:
        with self._lock:
            faults = [f for f in self._faults if isinstance(command, f.kind) and f.count < f.times]
        for fault in faults:
            verdict = fault.rule(command)
            if verdict is not Verdict.PASS:
                with self._lock:
                    fault.count += 1
                fault.fired.set()
                return verdict
        return Verdict.PASS


def _frames(source: socket.socket) -> Iterator[bytes]:
    stream = source.makefile("rb")
    while size := stream.read(4):
        body = stream.read(int.from_bytes(size, "big"))
        yield size + body
