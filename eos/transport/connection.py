"""One connection to a broker: requests and their answers, sends and their receipts.

A reading thread takes every frame that comes: it answers PING and AUTH_CHALLENGE, hands each
answer to the request that waits for it, and receipts to their producer. Nothing is ever repeated
here: when the connection is lost, everyone who waits is told so, and decides.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Final, TypeVar

from eos.errors import ConnectionLost, EosError, ProtocolError, RequestTimeout, broker_error
from eos.transport.address import Address
from eos.transport.greeting import auth_response, connect_command
from eos.transport.listener import ProducerListener
from eos.transport.security import Security
from eos.transport.stream import Stream, open_stream
from eos.wire import commands
from eos.wire.frames import Command, FrameDecoder, encode_frame, encode_send
from eos.wire.messages import Message

logger = logging.getLogger(__name__)

KEEP_ALIVE_S: Final = 30.0
"""Silence after which we ask with PING; after as much again the connection counts as lost."""

SEND_STALL_S: Final = 30.0
"""How long the broker may take no bytes at all before the connection counts as lost."""

AnswerT = TypeVar("AnswerT", bound=Message)


class Connection:
    """An authenticated connection. Made by ``Connection.open``.

    ``max_message_bytes`` is the broker's limit for one message's metadata and payload.
    """

    def __init__(self, address: Address, stream: Stream, security: Security) -> None:
        self.address = address
        self.max_message_bytes = 0
        self.server_version = ""
        self._stream = stream
        self._security = security
        self._decoder = FrameDecoder()
        self._write_lock = threading.Lock()
        self._state_lock = threading.Lock()
        self._request_ids = itertools.count(1)
        self._pending: dict[int, Future[Message]] = {}
        self._listeners: dict[int, ProducerListener] = {}
        self._connected: Future[Message] = Future()
        self._lost: EosError | None = None

    @classmethod
    def open(
        cls, address: Address, security: Security, *, timeout_s: float, proxy_to: str | None = None
    ) -> Connection:
        """Connect, authenticate and wait for CONNECTED.

        Args:
            proxy_to: ``host:port`` of the broker that the proxy at ``address`` shall pass us to.

        Raises:
            ConnectionLost, RequestTimeout, Unauthorized, ConfigurationError
        """
        connection = cls(address, open_stream(address, security, timeout_s), security)
        threading.Thread(
            target=connection._read_loop, name=f"eos-reader-{address.host_port}", daemon=True
        ).start()
        try:
            connection._handshake(timeout_s, proxy_to)
        except BaseException:
            connection.close()
            raise
        return connection

    def _handshake(self, timeout_s: float, proxy_to: str | None) -> None:
        self._write(connect_command(self._security, proxy_to))
        answer = self._await(self._connected, "CONNECT", timeout_s)
        connected = _expect(answer, commands.Connected)
        self.server_version = connected.server_version
        self.max_message_bytes = connected.max_message_size

    @property
    def is_alive(self) -> bool:
        """Whether requests can still be made; False for good once the connection is lost."""
        return self._lost is None

    def request(
        self, make: Callable[[int], Message], answer: type[AnswerT], *, timeout_s: float
    ) -> AnswerT:
        """Send the command that ``make`` builds from a request id and wait for its answer.

        Raises:
            RequestTimeout: no answer in ``timeout_s``; the broker may have acted or not.
            ConnectionLost: the same doubt, and the connection is gone.
            EosError: the broker answered ERROR; the class by ``BROKER_ERRORS``.
        """
        request_id = next(self._request_ids)
        command = make(request_id)
        future: Future[Message] = Future()
        with self._state_lock:
            if self._lost is not None:
                raise self._lost
            self._pending[request_id] = future
        try:
            self._write(command)
            return _expect(self._await(future, type(command).__name__, timeout_s), answer)
        finally:
            with self._state_lock:
                self._pending.pop(request_id, None)

    def send(
        self,
        send: commands.Send,
        metadata: commands.MessageMetadata,
        payload: bytes | memoryview,
    ) -> None:
        """Send one entry; its receipt comes to the producer's listener.

        Raises:
            ConnectionLost: the connection is gone; whether the broker has the entry is not known.
        """
        self._write_parts((encode_send(send, metadata, payload), payload))

    def listen(self, producer_id: int, listener: ProducerListener) -> None:
        """Tell ``listener`` all that concerns ``producer_id``, from now on.

        Raises:
            ConnectionLost: the connection is gone already.
        """
        with self._state_lock:
            if self._lost is not None:
                raise self._lost
            self._listeners[producer_id] = listener

    def forget(self, producer_id: int) -> None:
        """The producer is closed: nothing more is told."""
        with self._state_lock:
            self._listeners.pop(producer_id, None)

    def close(self) -> None:
        """End the connection; whoever waits on it is told ``ConnectionLost``."""
        self._lose(ConnectionLost(f"The connection to {self.address} was closed."))

    # --- writing ---------------------------------------------------------------------------

    def _write(self, command: Message) -> None:
        self._write_parts((encode_frame(command),))

    def _write_parts(self, parts: tuple[bytes | memoryview, ...]) -> None:
        with self._write_lock:
            if self._lost is not None:
                raise self._lost
            try:
                self._stream.send(parts, SEND_STALL_S)
            except OSError as error:
                lost = self._lose(ConnectionLost(f"Sending to {self.address} failed: {error}."))
                raise lost from error

    @staticmethod
    def _await(future: Future[Message], what: str, timeout_s: float) -> Message:
        try:
            return future.result(timeout_s)
        except FutureTimeout:
            raise RequestTimeout(f"No answer to {what} within {timeout_s:g} s.") from None

    # --- reading ---------------------------------------------------------------------------

    def _read_loop(self) -> None:
        try:
            asked = False
            while self._lost is None:
                try:
                    data = self._stream.recv(KEEP_ALIVE_S)
                except TimeoutError:
                    if asked:
                        raise ConnectionLost(f"{self.address} is silent.") from None
                    asked = True
                    self._write(commands.Ping())
                    continue
                if not data:
                    raise ConnectionLost(f"{self.address} closed the connection.")
                asked = False
                for command in self._decoder.feed(data):
                    self._dispatch(command)
        except EosError as error:
            self._lose(error)
        except OSError as error:
            self._lose(ConnectionLost(f"Reading from {self.address} failed: {error}."))
        except Exception as error:
            logger.exception("reader of %s failed", self.address)
            self._lose(ProtocolError(f"Reading from {self.address} failed: {error}."))
        finally:
            self._stream.close()

    def _dispatch(self, command: Command) -> None:
        match command:
            case commands.SendReceipt() | commands.SendError() | commands.CloseProducer():
                self._tell_producer(command)
            case commands.Ping():
                self._write(commands.Pong())
            case commands.AuthChallenge():
                self._write(auth_response(self._security))
            case commands.Connected():
                self._settle(self._connected, command)
            case commands.Error() if not self._connected.done():
                self._settle(self._connected, command)
            case _:
                self._answer(command)

    def _answer(self, command: Command) -> None:
        request_id = getattr(command, "request_id", None)
        with self._state_lock:
            future = self._pending.get(request_id) if request_id is not None else None
        if future is None:
            # Late answers to requests that gave up, PONG, and notices that need no action.
            logger.debug("unasked: %s from %s", type(command).__name__, self.address)
        elif isinstance(command, Message):
            self._settle(future, command)

    @staticmethod
    def _settle(future: Future[Message], command: Message) -> None:
        if future.done():
            raise ProtocolError(f"A second {type(command).__name__} to one request.")
        if isinstance(command, commands.Error):
            future.set_exception(broker_error(command.error, command.message, doing="Request"))
        else:
            future.set_result(command)

    def _tell_producer(
        self, command: commands.SendReceipt | commands.SendError | commands.CloseProducer
    ) -> None:
        with self._state_lock:
            listener = self._listeners.get(command.producer_id)
        if listener is None:
            return
        if isinstance(command, commands.SendReceipt):
            listener.on_receipt(command)
        elif isinstance(command, commands.SendError):
            listener.on_send_error(command)
        else:
            self.forget(command.producer_id)
            listener.on_closed(ConnectionLost("The broker closed the producer."))

    def _lose(self, error: EosError) -> EosError:
        """Mark the connection as lost, once, and tell everyone who waits."""
        with self._state_lock:
            if self._lost is not None:
                return self._lost
            self._lost = error
            futures = [self._connected, *self._pending.values()]
            listeners = list(self._listeners.values())
            self._listeners.clear()
        self._stream.shutdown()
        for future in futures:
            if not future.done():
                with contextlib.suppress(Exception):
                    future.set_exception(error)
        for listener in listeners:
            listener.on_closed(error)
        return error


def _expect(answer: Message, kind: type[AnswerT]) -> AnswerT:
    if not isinstance(answer, kind):
        raise ProtocolError(f"Expected {kind.__name__}, got {type(answer).__name__}.")
    return answer
