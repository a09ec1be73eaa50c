"""One connection to a broker, shared by threads: requests and answers, sends and acknowledgements.

Nothing is retried here: when the connection is lost, all waiting callers get the error and decide.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Final

from eos.errors import ConnectionLost, EosError, ProtocolError, RequestTimeout, broker_error
from eos.transport._auth_methods import Credentials, Login
from eos.transport._handshake import (
    Authenticator,
    check_first_bytes,
    checked_message_limit,
    with_fresh_token,
)
from eos.transport._stream import (
    KEEP_ALIVE_S,
    WITHOUT_LIMIT,
    Chunk,
    FrameWriter,
    Stream,
    open_stream,
)
from eos.transport.address import Address
from eos.transport.listeners import CONNECT, AnswerT, Listeners, PendingRequests
from eos.waiting import Future, begin
from eos.wire import commands
from eos.wire.commands import CloseConsumer
from eos.wire.frames import Command, Delivery, FrameDecoder, encode_frame, encode_send
from eos.wire.messages import WireMessage

logger = logging.getLogger(__name__)

_TELLING_S: Final = 1.0


class Connection:
    """An authenticated connection, created by ``Connection.open``.

    Attributes:
        max_message_bytes: the broker's limit for the metadata and payload of one message.
        may_be_proxy: whether the peer reports that it can't watch topics, as Pulsar's proxy does.
        listeners: the producers and consumers that get what the broker sends unasked.
    """

    def __init__(self, address: Address, stream: Stream, login: Login) -> None:
        self.address = address
        self.max_message_bytes = 0
        self.server_version = ""
        self.may_be_proxy = False
        self.listeners = Listeners()
        self._stream = stream
        self._authenticator = Authenticator(login)
        self._decoder = FrameDecoder()
        self._writer = FrameWriter(stream)
        self._pending = PendingRequests()
        self._request_ids = itertools.count(CONNECT + 1)
        self._lock = threading.Lock()
        self._lost: EosError | None = None
        self._is_told = False

    @classmethod
    def open(
        cls, address: Address, auth: Credentials, *, timeout_s: float, proxy_to: str | None = None
    ) -> Connection:
        """Connect, authenticate and wait for CONNECTED.

        Args:
            timeout_s: for the whole call.
            proxy_to: ``host:port`` of the broker that the proxy at ``address`` shall connect to.

        Raises:
            ConnectionLost, Unauthorized, ConfigurationError, ProtocolError, BrokerNotReady
        """
        return with_fresh_token(
            lambda left_s: cls._open(address, auth, left_s, proxy_to), timeout_s
        )

    @classmethod
    def _open(
        cls, address: Address, auth: Credentials, timeout_s: float, proxy_to: str | None
    ) -> Connection:
        deadline = time.monotonic() + timeout_s
        connection = cls(address, open_stream(address, auth, timeout_s), auth.login)
        name = f"eos-reader-{address.host_port}"
        try:
            threading.Thread(target=connection._read_loop, name=name, daemon=True).start()
        except BaseException:
            connection._stream.close()  # usually done by the reading thread
            raise
        try:
            connection._handshake(max(0.0, deadline - time.monotonic()), proxy_to)
        except BaseException:
            connection.close()
            raise
        return connection

    def _handshake(self, timeout_s: float, proxy_to: str | None) -> None:
        deadline = time.monotonic() + timeout_s
        connect = self._authenticator.connect(proxy_to, timeout_s=timeout_s)
        if time.monotonic() > deadline:
            raise ConnectionLost(
                f"Connecting to {self.address}: getting a token took all of {timeout_s:.1f} s."
            )
        with self._authenticator.connecting():
            connected = self._ask(
                CONNECT,
                connect,
                commands.Connected,
                timeout_s=max(0.0, deadline - time.monotonic()),
                doing=f"Connecting to {self.address}",
            )
        self.server_version = connected.server_version
        flags = connected.feature_flags
        self.may_be_proxy = flags is not None and flags.supports_topic_watchers is False
        self.max_message_bytes = checked_message_limit(connected, self.address)
        self._decoder.set_max_message_bytes(self.max_message_bytes)

    @property
    def is_alive(self) -> bool:
        """Whether requests can still be made. Once False, it stays False."""
        return self._lost is None

    def request(
        self,
        make: Callable[[int], WireMessage],
        answer: type[AnswerT],
        *,
        timeout_s: float,
        doing: str,
    ) -> AnswerT:
        """Send the command that ``make`` builds from a request id and wait for its answer.

        Args:
            doing: the start of an error message, such as "Connecting to ...".

        Raises:
            RequestTimeout: no answer within ``timeout_s``; the broker may have acted or not.
            ConnectionLost: the connection is lost; the broker may have acted or not.
            EosError: the broker answered ERROR; ``BROKER_ERRORS`` maps its code to a class.
        """
        request_id = next(self._request_ids)
        return self._ask(request_id, make(request_id), answer, timeout_s=timeout_s, doing=doing)

    def fail_request(self, request_id: int, error: EosError) -> None:
        """Raise ``error`` in the request that waits for an answer to ``request_id``."""
        self._pending.fail_one(request_id, error)

    def _ask(
        self,
        request_id: int,
        command: WireMessage,
        answer: type[AnswerT],
        *,
        timeout_s: float,
        doing: str,
    ) -> AnswerT:
        deadline = time.monotonic() + timeout_s
        future = self._pending.expect(request_id)
        try:
            self._write((encode_frame(command),), wait_s=timeout_s)
            given = future.result(max(0.0, deadline - time.monotonic()))
        except FutureTimeout:
            raise RequestTimeout(
                f"{doing}: no answer from {self.address} within {round(timeout_s, 1):g} s."
            ) from None
        finally:
            self._pending.remove(request_id)
        if isinstance(given, commands.Error):
            raise broker_error(given.error, given.message, doing=doing)
        if not isinstance(given, answer):
            # Pulsar's proxy answers so if it can't find out the partitions of a topic.
            if isinstance(given, commands.LookupResponse) and given.error is not None:
                raise broker_error(given.error, given.message, doing=doing)
            raise ProtocolError(f"{doing}: the broker answered {type(given).__name__}.")
        return given

    def notify(self, make: Callable[[int], WireMessage]) -> None:
        """Send a request before all later ones, without waiting: also under a lock.

        A lost connection is ignored.
        """
        self._soon(make(next(self._request_ids)))

    def _soon(self, command: WireMessage, *, once: bool = False) -> None:
        try:
            if self._lost is None:
                self._writer.write_soon(command, once=once)
        except BaseException:
            self._lose(ConnectionLost(f"Sending to {self.address} was interrupted."))
            raise

    def send(
        self,
        send: commands.Send,
        metadata: commands.MessageMetadata,
        payload: bytes | memoryview,
    ) -> None:
        """Send one entry. Its acknowledgement is passed to the producer's listener.

        Raises:
            ConnectionLost: the connection is lost; the broker may have the entry or not.
        """
        self._write((encode_send(send, metadata, payload), payload))

    def close(self) -> None:
        """Close the connection and raise ``ConnectionLost`` in all waiting callers."""
        self._lose(ConnectionLost(f"The connection to {self.address} was closed."))

    def _write(self, parts: tuple[Chunk, ...], *, wait_s: float = WITHOUT_LIMIT) -> None:
        self._check_alive()
        try:
            self._writer.write(parts, wait_s=wait_s)
        except OSError as error:
            self._lose(ConnectionLost(f"Sending to {self.address} failed: {error}."))
            self._check_alive()
        except EosError:
            raise
        except BaseException:
            self._lose(ConnectionLost(f"Sending to {self.address} was interrupted."))
            raise

    # --- reading ---------------------------------------------------------------------------

    def _read_loop(self) -> None:
        reason: EosError = ConnectionLost(f"The reader of {self.address} ended.")
        try:
            self._read()
        except EosError as error:
            reason = error
        except OSError as error:
            reason = ConnectionLost(f"Reading from {self.address} failed: {error}.")
        except Exception as error:
            logger.exception("The reader of %s failed", self.address)
            reason = ProtocolError(f"Reading from {self.address}: {type(error).__name__}.")
        finally:
            try:
                self._lose(reason)
            finally:
                self._stream.close()

    def _read(self) -> None:
        pinged = False
        while self._lost is None:
            try:
                data = self._stream.recv(KEEP_ALIVE_S)
            except TimeoutError:
                if pinged:
                    raise ConnectionLost(f"{self.address} is silent.") from None
                pinged = True
                self._soon(commands.Ping(), once=True)
                continue
            if not self.max_message_bytes:  # CONNECTED has not come yet
                check_first_bytes(data, self.address)
            if not data:
                raise ConnectionLost(f"{self.address} closed the connection.")
            pinged = False
            for command in self._decoder.feed(data):
                self._dispatch(command)

    def _dispatch(self, command: Command) -> None:
        # Never wait here for a writing thread: a broker that does not read until its own output
        # is read would deadlock.
        match command:
            case commands.SendError():
                self.listeners.dispatch(self._authenticator.redacted(command))
            case commands.SendReceipt() | commands.CloseProducer():
                self.listeners.dispatch(command)
            case Delivery() | CloseConsumer():
                self.listeners.dispatch(command)
            case commands.Ping():
                # A client "is required to promptly reply after receiving one from the broker".
                self._soon(commands.Pong(), once=True)
            case commands.AuthChallenge():
                self._soon(self._authenticator.challenge_response(), once=True)
            case WireMessage():
                self._pending.resolve(self._authenticator.redacted(command))

    # --- the end ---------------------------------------------------------------------------

    def _check_alive(self) -> None:
        if self._lost is not None:
            raise copy.copy(self._lost)  # raised in several threads, one object's traceback grows

    def _lose(self, error: EosError) -> None:
        with self._lock:
            if self._lost is None:
                self._lost = copy.copy(error)
        # Without the lock, as the code of listeners runs. If Ctrl-C interrupts this, the reading
        # thread completes it.
        self._writer.give_up()
        self._stream.shutdown()
        if self._is_told or threading.current_thread() is not threading.main_thread():
            self._tell_all()
            return
        told: Future[None] = Future()
        try:
            begin(self._tell_all, told)  # only the main thread is interrupted
        except RuntimeError:  # there are too many threads
            self._tell_all()
        else:
            with contextlib.suppress(FutureTimeout):  # a listener may need a lock of the caller
                told.result(_TELLING_S)

    def _tell_all(self) -> None:
        """Tell all requests and listeners that the connection is lost; once."""
        with self._lock:
            was_told, self._is_told = self._is_told, True
        if not was_told and self._lost is not None:
            self._pending.fail(self._lost)
            self.listeners.fail(self._lost)
