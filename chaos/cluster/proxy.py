"""A proxy between any Pulsar client and real brokers that loses, cuts, delays and forges frames.

It acts as a Pulsar proxy, so all connections of a client pass here. A fault selects commands by
class, fires a limited number of times, and counts its actions, as proof that it happened.
"""

from __future__ import annotations

import contextlib
import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import chain
from typing import Any, Final, Literal

from eos.errors import ProtocolError
from eos.transport.address import Address, parse_service_url
from eos.wire import commands
from eos.wire.frames import Delivery, FrameDecoder, encode_frame
from eos.wire.messages import WireMessage


class FrameAction(Enum):
    """The action on a frame selected by a fault."""

    PASS = "forward it"  # noqa: S105 - no password
    DROP = "drop it; the connection stays"
    CUT = "drop it, and cut the connection"
    CUT_AFTER = "forward it, then cut the connection"
    CUT_WITHIN = "forward half of it, then cut the connection"
    DAMAGE = "forward it with another last byte"


@dataclass(frozen=True)
class Replace:
    """Forward ``command`` instead of the frame."""

    command: WireMessage


@dataclass(frozen=True)
class Hold:
    """Delay it, and all later frames of this connection, by ``seconds``."""

    seconds: float


_DIAL_S: Final = 10.0
Towards = Literal["broker", "client"]
Judgement = FrameAction | Replace | Hold | WireMessage
# Returns an action for a command, or a command that answers its sender instead of the receiver.
Rule = Callable[[Any], Judgement]


@dataclass
class FrameFault:
    """A rule for one class of commands. ``fired`` is set at its first action."""

    kind: type[WireMessage]
    rule: Rule
    times: int
    towards: Towards | None
    count: int = 0
    fired: threading.Event = field(default_factory=threading.Event)


class _Socket:
    # Writes whole frames: a forged answer comes from the other direction's thread.

    def __init__(self, sock: socket.socket) -> None:
        sock.settimeout(None)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock = sock
        self._lock = threading.Lock()
        self._is_mute = False

    def send(self, frame: bytes) -> None:
        with self._lock:
            if not self._is_mute:
                self._sock.sendall(frame)

    def mute(self) -> None:
        with self._lock:
            self._is_mute = True

    def frames(self) -> Iterator[bytes]:
        while len(size := self._read(4)) == 4:
            body = self._read(int.from_bytes(size, "big"))
            if len(body) != int.from_bytes(size, "big"):
                return  # cut within a frame: its receiver could do nothing with a part
            yield size + body

    def _read(self, size: int) -> bytes:
        parts = []
        while size and (part := self._sock.recv(min(size, 1 << 20))):
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def shutdown(self) -> None:
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._sock.close()


class FaultProxy:
    """Listens on a free port of this machine; a context manager.

    Clients get its ``service_url`` instead of the brokers'. ``seen`` counts commands by class.
    """

    def __init__(self, broker_url: str) -> None:
        self._brokers = parse_service_url(broker_url)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._faults: list[FrameFault] = []
        self._lock = threading.Lock()
        self._sockets: dict[_Socket, Address] = {}
        self._isolated: set[Address] = set()
        self._waiting: set[_Socket] = set()
        self._threads: set[threading.Thread] = set()
        self._closed = False
        self.seen: Counter[type] = Counter()
        self._start(self._accept)

    @property
    def service_url(self) -> str:
        """``pulsar://127.0.0.1:port``."""
        return f"pulsar://127.0.0.1:{self._listener.getsockname()[1]}"

    @contextmanager
    def fault(
        self,
        kind: type[WireMessage],
        rule: Rule | Judgement,
        *,
        times: int = 1,
        towards: Towards | None = None,
    ) -> Iterator[FrameFault]:
        """Apply ``rule`` to the next ``times`` commands of ``kind`` (``WireMessage`` for any).

        Args:
            towards: only commands to the broker, or to the client; None for both.
        """
        decide: Rule = rule if callable(rule) else lambda _: rule
        fault = FrameFault(kind, decide, times, towards)
        with self._lock:
            self._faults.append(fault)
        try:
            yield fault
        finally:
            with self._lock:
                self._faults.remove(fault)

    def cut_all(self) -> int:
        """Cut all open connections and return their number; new ones are accepted."""
        return self._cut(lambda _: True)

    @contextmanager
    def isolated(self, service_url: str) -> Iterator[int]:
        """Refuse connections to one broker; yield the number of connections that were cut."""
        (broker,) = parse_service_url(service_url)
        with self._lock:
            self._isolated.add(broker)
        try:
            yield self._cut(lambda address: address == broker)
        finally:
            with self._lock:
                self._isolated.discard(broker)

    def _cut(self, concerns: Callable[[Address], bool]) -> int:
        with self._lock:
            sockets = [sock for sock, address in self._sockets.items() if concerns(address)]
        for sock in sockets:
            sock.shutdown()
        return len(sockets) // 2  # each connection has two ends

    def close(self) -> None:
        """Stop listening and cut all connections; return when its threads have ended."""
        with self._lock:
            self._closed = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut_all()
        with self._lock:
            for sock in self._waiting:
                sock.shutdown()
            threads = list(self._threads)
        for thread in threads:
            thread.join(timeout=5)  # a rule may still delay a frame

    def __enter__(self) -> FaultProxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self, target: Callable[..., None], *args: object) -> None:
        def run() -> None:
            try:
                target(*args)
            finally:
                with self._lock:
                    self._threads.discard(thread)

        thread = threading.Thread(target=run, name="fault-proxy", daemon=True)
        with self._lock:
            self._threads.add(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client = _Socket(self._listener.accept()[0])
            except OSError:
                return
            self._start(self._connect, client)

    def _connect(self, client: _Socket) -> None:
        # The first frame names the broker: only then can the other end be connected.
        with self._lock:
            self._waiting.add(client)
        first = None
        with contextlib.suppress(OSError):
            first = next(client.frames(), None)
        dialled = None if first is None else self._dial(first)
        with self._lock:
            self._waiting.discard(client)
            if first is None or dialled is None or self._closed:
                client.close()
                if dialled is not None:
                    dialled[1].close()
                return
            address, broker = dialled
            self._sockets[client] = self._sockets[broker] = address
        self._start(self._pump, broker, client, "client")
        self._pump(client, broker, "broker", first)

    def _dial(self, first: bytes) -> tuple[Address, _Socket] | None:
        # Without a name, as for a lookup, any broker will do; one may be dead.
        wanted: Sequence[Address] = random.sample(self._brokers, len(self._brokers))
        with contextlib.suppress(ProtocolError):
            (command,) = FrameDecoder(max_frame_bytes=1 << 32).feed(first)
            if isinstance(command, commands.Connect) and command.proxy_to_broker_url:
                wanted = parse_service_url(f"pulsar://{command.proxy_to_broker_url}")
        for address in wanted:
            if address not in self._isolated:
                with contextlib.suppress(OSError):
                    place = (address.host, address.port)
                    return address, _Socket(socket.create_connection(place, _DIAL_S))
        return None

    def _pump(
        self, source: _Socket, target: _Socket, towards: Towards, first: bytes | None = None
    ) -> None:
        try:
            for frame in chain([] if first is None else [first], source.frames()):
                if not self._handle(frame, source, target, towards):
                    break
        except OSError:
            pass
        finally:
            # The shutdown ends the other direction, which then closes the end that it reads from.
            source.shutdown()
            target.shutdown()
            with self._lock:
                self._sockets.pop(source, None)
            source.close()

    def _handle(self, frame: bytes, source: _Socket, target: _Socket, towards: Towards) -> bool:
        """Handle one frame; return False if the connection must be cut."""
        try:
            (command,) = FrameDecoder(max_frame_bytes=1 << 32).feed(frame)
        except ProtocolError:  # unknown to this decoder: another client's command
            target.send(frame)
            return True
        judged = command.command if isinstance(command, Delivery) else command
        verdict = self._judge(judged, towards)
        if isinstance(verdict, Hold):
            time.sleep(verdict.seconds)
            verdict = FrameAction.PASS
        if isinstance(verdict, WireMessage):
            source.send(encode_frame(verdict))
            return True
        if isinstance(verdict, Replace):
            target.send(encode_frame(verdict.command))
            return True
        if isinstance(command, commands.LookupResponse):
            # Clients then connect to the broker through this proxy, as through Pulsar's own.
            frame = encode_frame(replace(command, proxy_through_service_url=True))
        if verdict is FrameAction.CUT_WITHIN:
            target.send(frame[: len(frame) // 2])
        if verdict is FrameAction.DAMAGE:
            frame = frame[:-1] + bytes([frame[-1] ^ 0xFF])
        if verdict is FrameAction.CUT_AFTER:
            source.mute()  # the answer could be faster than the cut, and then nothing was lost
        if verdict in (FrameAction.PASS, FrameAction.CUT_AFTER, FrameAction.DAMAGE):
            target.send(frame)
        return verdict in (FrameAction.PASS, FrameAction.DROP, FrameAction.DAMAGE)

    def _judge(self, command: object, towards: Towards) -> Judgement:
        with self._lock:
            self.seen[type(command)] += 1
            faults = [
                fault
                for fault in self._faults
                if isinstance(command, fault.kind)
                and fault.towards in (None, towards)
                and fault.count < fault.times
            ]
        for fault in faults:
            verdict = fault.rule(command)  # without the lock: it may delay the frame
            if verdict is FrameAction.PASS:
                continue
            with self._lock:
                if fault.count >= fault.times:  # another connection was faster
                    continue
                fault.count += 1
            fault.fired.set()
            return verdict
        return FrameAction.PASS
