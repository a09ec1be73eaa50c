"""A blocking connection for reading in bulk: the caller's thread reads, in large receives."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt

from eos.errors import ConnectionLost, ProtocolError, RequestTimeout, broker_error
from eos.transport._auth_methods import Credentials, Login
from eos.transport._handshake import (
    Authenticator,
    check_first_bytes,
    checked_message_limit,
    with_fresh_token,
)
from eos.transport._stream import KEEP_ALIVE_S, SEND_STALL_S, Stream, open_stream
from eos.transport.address import Address
from eos.transport.listeners import CONNECT, AnswerT
from eos.wire import commands
from eos.wire.decoding import DeliveredEntry
from eos.wire.frames import encode_frame
from eos.wire.messages import WireMessage
from eos.wire.receive_buffer import ReceiveBuffer

# Up to so many bytes are received, if available, before they are parsed together.
_ENOUGH_BYTES: Final = 1024 * 1024


class BlockingConnection:
    """An authenticated connection, created by ``BlockingConnection.open``; not thread-safe.

    It sends nothing between calls, not even PONG: brokers close it after about a minute.
    """

    def __init__(self, address: Address, stream: Stream, login: Login) -> None:
        self.address = address
        self._stream = stream
        self._authenticator = Authenticator(login)
        self._receive_buffer = ReceiveBuffer()
        self._request_ids = itertools.count(CONNECT + 1)
        self._unsolicited: list[WireMessage] = []  # received while waiting for an answer
        self._has_received = False
        self._received_at = time.monotonic()
        self._pinged = False

    @classmethod
    def open(
        cls, address: Address, auth: Credentials, *, timeout_s: float, proxy_to: str | None = None
    ) -> BlockingConnection:
        """Connect, authenticate and wait for CONNECTED, as ``Connection.open`` does."""
        return with_fresh_token(
            lambda left_s: cls._open(address, auth, left_s, proxy_to), timeout_s
        )

    @classmethod
    def _open(
        cls, address: Address, auth: Credentials, timeout_s: float, proxy_to: str | None
    ) -> BlockingConnection:
        deadline = time.monotonic() + timeout_s
        connection = cls(address, open_stream(address, auth, timeout_s), auth.login)
        try:
            connection._handshake(deadline, proxy_to)
        except BaseException:
            connection.close()
            raise
        return connection

    def _handshake(self, deadline: float, proxy_to: str | None) -> None:
        left_s = max(0.0, deadline - time.monotonic())
        connect = self._authenticator.connect(proxy_to, timeout_s=left_s)
        with self._authenticator.connecting():
            connected = self._ask(
                connect,
                commands.Connected,
                lambda answer: isinstance(answer, commands.Connected | commands.Error),
                deadline,
                doing=f"Connecting to {self.address}",
            )
        self._receive_buffer.set_max_message_bytes(checked_message_limit(connected, self.address))

    def request(
        self,
        make: Callable[[int], WireMessage],
        answer: type[AnswerT],
        *,
        timeout_s: float,
        doing: str,
    ) -> AnswerT:
        """As ``Connection.request``; not once the broker may send entries: they would be lost."""
        request_id = next(self._request_ids)
        return self._ask(
            make(request_id),
            answer,
            lambda command: getattr(command, "request_id", None) == request_id,
            time.monotonic() + timeout_s,
            doing=doing,
        )

    def _ask(
        self,
        command: WireMessage,
        answer: type[AnswerT],
        is_answer: Callable[[WireMessage], bool],
        deadline: float,
        *,
        doing: str,
    ) -> AnswerT:
        self.send(command)
        while (left_s := deadline - time.monotonic()) > 0:
            entries, received = self._receive(left_s)
            if entries:
                raise ProtocolError(f"{doing}: the broker sent entries that were not requested.")
            answers = [given for given in received if is_answer(given)]
            self._unsolicited += [notice for notice in received if not is_answer(notice)]
            for given in answers:
                if isinstance(given, commands.Error):
                    raise broker_error(given.error, given.message, doing=doing)
                if not isinstance(given, answer):
                    raise ProtocolError(f"{doing}: the broker answered {type(given).__name__}.")
                return given
            if any(isinstance(notice, commands.CloseConsumer) for notice in received):
                # A broker that is closing a consumer does not answer its requests (measured).
                raise ConnectionLost(f"{doing}: the broker has closed the reader.")
        raise RequestTimeout(f"{doing}: no answer from {self.address}.")

    def send(self, command: WireMessage) -> None:
        """Send ``command``. ``receive`` returns its answer, if it has one.

        Raises:
            ConnectionLost: the connection is lost.
        """
        try:
            self._stream.send([encode_frame(command)], SEND_STALL_S)
        except OSError as error:
            raise ConnectionLost(f"Sending to {self.address} failed: {error}.") from None

    @property
    def buffer(self) -> npt.NDArray[np.uint8]:
        """The buffer with the payloads of the entries that ``receive`` last returned."""
        return self._receive_buffer.buffer

    def receive(self, timeout_s: float) -> tuple[list[DeliveredEntry], list[WireMessage]]:
        """Return all entries and other commands that have arrived; both lists may be empty.

        It waits up to about ``timeout_s`` for the first.

        Raises:
            ConnectionLost: the connection is lost, or has been silent for too long.
            ProtocolError: a frame is malformed or an entry corrupt; the previous call returned
                everything before it.
        """
        if self._unsolicited:
            unasked, self._unsolicited = self._unsolicited, []
            return [], unasked
        return self._receive(timeout_s)

    def _receive(self, timeout_s: float) -> tuple[list[DeliveredEntry], list[WireMessage]]:
        deadline = time.monotonic() + timeout_s
        while True:
            entries, received = self._receive_buffer.take()
            received = [self._authenticator.redacted(command) for command in received]
            for command in received:
                self._reply(command)
            if entries or received or time.monotonic() > deadline:
                return entries, received
            self._fill(deadline)

    def _fill(self, deadline: float) -> None:
        wait_s = min(deadline, self._received_at + KEEP_ALIVE_S) - time.monotonic()
        if not self._receive_some(max(0.0, wait_s)):
            self._check_silence()
            return
        with contextlib.suppress(ConnectionLost):  # raised by the next call, after these bytes
            while self._receive_buffer.pending_bytes < _ENOUGH_BYTES and self._receive_some(0.0):
                pass

    def _receive_some(self, wait_s: float) -> bool:
        space = self._receive_buffer.free_space()
        try:
            count = self._stream.recv_into(space, wait_s)
        except TimeoutError:
            return False  # nothing arrived within ``wait_s``
        except OSError as error:
            raise ConnectionLost(f"Reading from {self.address} failed: {error}.") from None
        if not self._has_received:
            check_first_bytes(bytes(space[:count]), self.address)
            self._has_received = True
        if not count:
            raise ConnectionLost(f"{self.address} closed the connection.")
        self._received_at = time.monotonic()
        self._pinged = False
        self._receive_buffer.fill(count)
        return True

    def _check_silence(self) -> None:
        now = time.monotonic()
        if now < self._received_at + KEEP_ALIVE_S:
            return
        if self._pinged:
            raise ConnectionLost(f"{self.address} is silent.")
        self._pinged = True
        self._received_at = now
        self.send(commands.Ping())

    def _reply(self, command: WireMessage) -> None:
        # If the connection is lost by now, the next receive raises it, after these commands.
        with contextlib.suppress(ConnectionLost):
            if isinstance(command, commands.Ping):
                self.send(commands.Pong())
            elif isinstance(command, commands.AuthChallenge):
                self.send(self._authenticator.challenge_response())

    def close(self) -> None:
        """Close the connection, and with it its consumers at the broker."""
        self._stream.shutdown()
        self._stream.close()
