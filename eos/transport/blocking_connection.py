"""A connection for one thread, which reads by itself: no other thread, no queue, large receives.

For reading in bulk. ``Connection`` is for everything else.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt

from eos.errors import ConnectionLost, EosError, ProtocolError, RequestTimeout, broker_error
from eos.transport._handshake import Greeting, check_first_bytes
from eos.transport._pending import CONNECT
from eos.transport._stream import Stream, open_stream
from eos.transport._writer import SEND_STALL_S
from eos.transport.address import Address
from eos.transport.auth import Auth
from eos.transport.connection import KEEP_ALIVE_S, MIN_MESSAGE_BYTES, AnswerT
from eos.wire import commands
from eos.wire.decoding import DeliveredEntry
from eos.wire.frames import encode_frame
from eos.wire.messages import WireMessage
from eos.wire.receive_buffer import Inbox

_ENOUGH_BYTES: Final = 1024 * 1024
"""Received at once, if there is so much: what follows is done for all of it together."""


class DirectConnection:
    """An authenticated connection. Made by ``DirectConnection.open``; for one thread at a time.

    A peer hears nothing from us while nobody calls: after a minute or so brokers hang up.
    """

    def __init__(self, address: Address, stream: Stream, auth: Auth) -> None:
        self.address = address
        self._stream = stream
        self._greeting = Greeting(auth)
        self._inbox = Inbox()
        self._request_ids = itertools.count(CONNECT + 1)
        self._unasked: list[WireMessage] = []  # came while an answer was awaited
        self._is_welcome = False
        self._heard_at = time.monotonic()
        self._asked = False

    @classmethod
    def open(
        cls, address: Address, auth: Auth, *, timeout_s: float, proxy_to: str | None = None
    ) -> DirectConnection:
        """Connect, authenticate and wait for CONNECTED, as ``Connection.open`` does."""
        deadline = time.monotonic() + timeout_s
        connection = cls(address, open_stream(address, auth, timeout_s), auth)
        try:
            connection._handshake(deadline, proxy_to)
        except BaseException:
            connection.close()
            raise
        return connection

    def _handshake(self, deadline: float, proxy_to: str | None) -> None:
        left_s = max(0.0, deadline - time.monotonic())
        connect = self._greeting.connect(proxy_to, timeout_s=left_s)
        try:
            connected = self._ask(
                connect,
                commands.Connected,
                lambda answer: isinstance(answer, commands.Connected | commands.Error),
                deadline,
                doing=f"Connecting to {self.address}",
            )
        except RequestTimeout as error:  # nothing was asked for yet, so nothing is in doubt
            raise ConnectionLost(error.message) from None
        except EosError as error:
            raise self._greeting.refusal(error) from None
        if connected.max_message_size < MIN_MESSAGE_BYTES:
            raise ProtocolError(
                f"{self.address} takes messages of {connected.max_message_size} bytes."
            )
        self._inbox.admit_messages(connected.max_message_size)

    def request(
        self,
        make: Callable[[int], WireMessage],
        answer: type[AnswerT],
        *,
        timeout_s: float,
        doing: str,
    ) -> AnswerT:
        """Send the command that ``make`` builds from a request id, and read up to its answer.

        Not once entries are under way: they would be lost.

        Raises:
            RequestTimeout: no answer in ``timeout_s``; the broker may have acted or not.
            ConnectionLost: the same doubt, and the connection is gone.
            EosError: the broker answered ERROR; the class by ``BROKER_ERRORS``.
        """
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
            self._unasked += [notice for notice in received if not is_answer(notice)]
            for given in answers:
                if isinstance(given, commands.Error):
                    raise broker_error(
                        given.error, self._greeting.words(given.message), doing=doing
                    )
                if not isinstance(given, answer):
                    raise ProtocolError(f"{doing}: the broker answered {type(given).__name__}.")
                return given
            if any(isinstance(notice, commands.CloseConsumer) for notice in received):
                # What is asked on the way to a consumer's end gets no answer (measured).
                raise ConnectionLost(f"{doing}: the broker has closed the reader.")
        raise RequestTimeout(f"{doing}: no answer from {self.address}.")

    def send(self, command: WireMessage) -> None:
        """Send ``command``; its answer, if it has one, comes with ``receive``.

        Raises:
            ConnectionLost: the connection is gone.
        """
        try:
            self._stream.send([encode_frame(command)], SEND_STALL_S)
        except OSError as error:
            raise ConnectionLost(f"Sending to {self.address} failed: {error}.") from None

    @property
    def buffer(self) -> npt.NDArray[np.uint8]:
        """Where the payloads of the entries lie that ``receive`` gave last."""
        return self._inbox.buffer

    def receive(self, timeout_s: float) -> tuple[list[DeliveredEntry], list[WireMessage]]:
        """What comes next: as many entries as are there, and other commands; nothing when nothing
        comes within ``timeout_s``. Waits not much longer, and not much less.

        Raises:
            ConnectionLost: the connection is gone, or has been silent for too long.
            ProtocolError: a frame is malformed or an entry damaged; what stood before it was
                given by the call before.
        """
        if self._unasked:
            unasked, self._unasked = self._unasked, []
            return [], unasked
        return self._receive(timeout_s)

    def _receive(self, timeout_s: float) -> tuple[list[DeliveredEntry], list[WireMessage]]:
        deadline = time.monotonic() + timeout_s
        while True:
            entries, received = self._inbox.take()
            for command in received:
                self._reply(command)
            if entries or received or time.monotonic() > deadline:
                return entries, received
            self._fill(deadline)

    def _fill(self, deadline: float) -> None:
        wait_s = min(deadline, self._heard_at + KEEP_ALIVE_S) - time.monotonic()
        if not self._receive_some(max(0.0, wait_s)):
            self._check_silence()
            return
        with contextlib.suppress(ConnectionLost):  # found out again, behind what has come
            while self._inbox.held_bytes < _ENOUGH_BYTES and self._receive_some(0.0):
                pass

    def _receive_some(self, wait_s: float) -> bool:
        """Take what has come; whether anything has in ``wait_s``."""
        room = self._inbox.room()
        try:
            count = self._stream.recv_into(room, wait_s)
        except TimeoutError:
            return False
        except OSError as error:
            raise ConnectionLost(f"Reading from {self.address} failed: {error}.") from None
        if not self._is_welcome:
            check_first_bytes(bytes(room[:count]), self.address)
            self._is_welcome = True
        if not count:
            raise ConnectionLost(f"{self.address} closed the connection.")
        self._heard_at = time.monotonic()
        self._asked = False
        self._inbox.fill(count)
        return True

    def _check_silence(self) -> None:
        now = time.monotonic()
        if now < self._heard_at + KEEP_ALIVE_S:
            return
        if self._asked:
            raise ConnectionLost(f"{self.address} is silent.")
        self._asked = True
        self._heard_at = now
        self.send(commands.Ping())

    def _reply(self, command: WireMessage) -> None:
        # A connection that is lost by now is found out behind what has come.
        with contextlib.suppress(ConnectionLost):
            if isinstance(command, commands.Ping):
                self.send(commands.Pong())
            elif isinstance(command, commands.AuthChallenge):
                self.send(self._greeting.answer())

    def close(self) -> None:
        """End the connection; all that was open on it ends with it."""
        self._stream.shutdown()
        self._stream.close()
