"""One connection to a broker: requests and their answers, sends and their acknowledgements.

A reading thread takes every frame that comes: it answers PING and AUTH_CHALLENGE, hands each
answer to the request that waits for it, acknowledgements to their producer and entries to their
reader. It never waits for a writer: a broker that reads on only after we have read would wait for
ever.
Nothing is ever repeated here: when the connection is lost, everyone who waits gets the error, and
decides.
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
from typing import Final, TypeVar

from eos.errors import ConnectionLost, EosError, ProtocolError, RequestTimeout, broker_error
from eos.transport._handshake import Greeting, check_first_bytes
from eos.transport._listener import ConsumerListener, Listeners, ProducerListener
from eos.transport._pending import CONNECT, PendingRequests
from eos.transport._stream import Chunk, Stream, open_stream
from eos.transport._writer import WITHOUT_LIMIT, Writer
from eos.transport.address import Address
from eos.transport.auth import Auth
from eos.wire import commands
from eos.wire.commands import CloseConsumer
from eos.wire.frames import Command, Delivery, FrameDecoder, encode_frame, encode_send
from eos.wire.messages import WireMessage

logger = logging.getLogger(__name__)

KEEP_ALIVE_S: Final = 30.0
"""Silence after which we ask with PING; after as much again the connection counts as lost."""

MIN_MESSAGE_BYTES: Final = 4096
"""A broker that takes less per message than this is no broker."""

AnswerT = TypeVar("AnswerT", bound=WireMessage)


class Connection:
    """An authenticated connection. Made by ``Connection.open``.

    ``max_message_bytes`` is the broker's limit for one message's metadata and payload.
    """

    def __init__(self, address: Address, stream: Stream, auth: Auth) -> None:
        self.address = address
        self.max_message_bytes = 0
        self.server_version = ""
        self._stream = stream
        self._greeting = Greeting(auth)
        self._decoder = FrameDecoder()
        self._writer = Writer(stream)
        self._answers = PendingRequests()
        self._request_ids = itertools.count(CONNECT + 1)
        self._lock = threading.Lock()
        self._listeners = Listeners()
        self._lost: EosError | None = None

    @classmethod
    def open(
        cls, address: Address, auth: Auth, *, timeout_s: float, proxy_to: str | None = None
    ) -> Connection:
        """Connect, authenticate and wait for CONNECTED.

        Args:
            timeout_s: for all of it.
            proxy_to: ``host:port`` of the broker that the proxy at ``address`` shall pass us to.

        Raises:
            ConnectionLost, Unauthorized, ConfigurationError, ProtocolError, BrokerNotReady
        """
        deadline = time.monotonic() + timeout_s
        connection = cls(address, open_stream(address, auth, timeout_s), auth)
        name = f"eos-reader-{address.host_port}"
        try:
            threading.Thread(target=connection._read_loop, name=name, daemon=True).start()
        except BaseException:
            connection._stream.close()  # there is no reader to do it
            raise
        try:
            connection._handshake(max(0.0, deadline - time.monotonic()), proxy_to)
        except BaseException:
            connection.close()
            raise
        return connection

    def _handshake(self, timeout_s: float, proxy_to: str | None) -> None:
        deadline = time.monotonic() + timeout_s
        connect = self._greeting.connect(proxy_to, timeout_s=timeout_s)
        if time.monotonic() > deadline:
            raise ConnectionLost(
                f"Connecting to {self.address}: to have a token took all of {timeout_s:.1f} s."
            )
        try:
            connected = self._ask(
                CONNECT,
                connect,
                commands.Connected,
                timeout_s=max(0.0, deadline - time.monotonic()),
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
        self.server_version = connected.server_version
        self.max_message_bytes = connected.max_message_size
        self._decoder.admit_messages(connected.max_message_size)

    @property
    def is_alive(self) -> bool:
        """Whether requests can still be made; False for good once the connection is lost."""
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
            doing: begins the text of the error, should the broker refuse.

        Raises:
            RequestTimeout: no answer in ``timeout_s``; the broker may have acted or not.
            ConnectionLost: the same doubt, and the connection is gone.
            EosError: the broker answered ERROR; the class by ``BROKER_ERRORS``.
        """
        request_id = next(self._request_ids)
        return self._ask(request_id, make(request_id), answer, timeout_s=timeout_s, doing=doing)

    def abandon(self, request_id: int, error: EosError) -> None:
        """Tell whoever waits for the answer to ``request_id`` that none will come."""
        self._answers.abandon(request_id, error)

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
        future = self._answers.expect(request_id)
        try:
            self._write((encode_frame(command),), wait_s=timeout_s)
            given = future.result(max(0.0, deadline - time.monotonic()))
        except FutureTimeout:
            raise RequestTimeout(
                f"{doing}: no answer from {self.address} within {round(timeout_s, 1):g} s."
            ) from None
        finally:
            self._answers.forget(request_id)
        if isinstance(given, commands.Error):
            raise broker_error(given.error, self._greeting.words(given.message), doing=doing)
        if not isinstance(given, answer):
            raise ProtocolError(f"{doing}: the broker answered {type(given).__name__}.")
        return given

    def notify(self, make: Callable[[int], WireMessage]) -> None:
        """Send a request whose answer nobody waits for; a lost connection is no error here."""
        with contextlib.suppress(EosError):
            self._write((encode_frame(make(next(self._request_ids))),))

    def send(
        self,
        send: commands.Send,
        metadata: commands.MessageMetadata,
        payload: bytes | memoryview,
    ) -> None:
        """Send one entry; its acknowledgement comes to the producer's listener.

        Raises:
            ConnectionLost: the connection is gone; whether the broker has the entry is not known.
        """
        self._write((encode_send(send, metadata, payload), payload))

    def listen(self, producer_id: int, listener: ProducerListener) -> None:
        """Tell ``listener`` all that concerns ``producer_id``, from now on.

        Raises:
            ConnectionLost: the connection is gone already.
        """
        self._listeners.add_producer(producer_id, listener)

    def replace_listener(
        self, producer_id: int, old: ProducerListener, new: ProducerListener
    ) -> None:
        """Tell ``new`` what was told to ``old`` until now.

        Raises:
            ConnectionLost: the producer is closed at the broker, or the connection is gone.
        """
        self._listeners.replace_producer(producer_id, old, new)

    def forget(self, producer_id: int) -> None:
        """The producer is closed: nothing more is told."""
        self._listeners.forget_producer(producer_id)

    def listen_to_consumer(self, consumer_id: int, listener: ConsumerListener) -> None:
        """Tell ``listener`` all that concerns ``consumer_id``, from now on.

        Raises:
            ConnectionLost: the connection is gone already.
        """
        self._listeners.add_consumer(consumer_id, listener)

    def forget_consumer(self, consumer_id: int) -> None:
        """The consumer is closed: nothing more is told."""
        self._listeners.forget_consumer(consumer_id)

    def close(self) -> None:
        """End the connection; whoever waits on it is told ``ConnectionLost``."""
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
            logger.exception("the reader of %s failed", self.address)
            reason = ProtocolError(f"Reading from {self.address}: {type(error).__name__}.")
        finally:
            try:
                self._lose(reason)
            finally:
                self._stream.close()

    def _read(self) -> None:
        asked = False
        while self._lost is None:
            try:
                data = self._stream.recv(KEEP_ALIVE_S)
            except TimeoutError:
                if asked:
                    raise ConnectionLost(f"{self.address} is silent.") from None
                asked = True
                self._writer.owe(commands.Ping())
                continue
            if not self.max_message_bytes:  # CONNECTED has not come yet
                check_first_bytes(data, self.address)
            if not data:
                raise ConnectionLost(f"{self.address} closed the connection.")
            asked = False
            for command in self._decoder.feed(data):
                self._dispatch(command)

    def _dispatch(self, command: Command) -> None:
        match command:
            case commands.SendReceipt() | commands.SendError() | commands.CloseProducer():
                self._listeners.tell(command)
            case Delivery() | CloseConsumer():
                self._listeners.tell(command)
            case commands.Ping():
                self._writer.owe(commands.Pong())
            case commands.AuthChallenge():
                self._writer.owe(self._greeting.answer())
            case WireMessage():
                self._answers.settle(command)

    # --- the end ---------------------------------------------------------------------------

    def _check_alive(self) -> None:
        if self._lost is not None:
            raise copy.copy(self._lost)  # one instance in several threads would grow tracebacks

    def _lose(self, error: EosError) -> None:
        """Tell everyone who waits, once. Runs producers' and users' code, so under no lock."""
        with self._lock:
            if self._lost is not None:
                return
            self._lost = lost = copy.copy(error)
        self._stream.shutdown()
        self._answers.fail(lost)
        self._listeners.fail(lost)
