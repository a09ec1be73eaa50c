"""Who waits for what the broker sends: requests for their answers, producers and consumers."""

from __future__ import annotations

import copy
import logging
import threading
from typing import Final, Protocol, TypeVar

from eos.errors import ConnectionLost, EosError
from eos.waiting import Future
from eos.wire import commands
from eos.wire.commands import CloseConsumer
from eos.wire.frames import Delivery
from eos.wire.messages import WireMessage

# The id of CONNECT, which carries no request id, like its answer. Real ids are greater.
CONNECT: Final = 0

AnswerT = TypeVar("AnswerT", bound=WireMessage)


class PendingRequests:
    """The requests of one connection that await an answer, by request id."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._futures: dict[int, Future[WireMessage]] = {}
        self._failed: EosError | None = None

    def expect(self, request_id: int) -> Future[WireMessage]:
        """Return a future for the answer to ``request_id``. The caller must ``remove`` it.

        Raises:
            EosError: the connection has failed; the error that ``fail`` was given.
        """
        future: Future[WireMessage] = Future()
        with self._lock:
            if self._failed is not None:
                raise copy.copy(self._failed)
            self._futures[request_id] = future
        return future

    def remove(self, request_id: int) -> None:
        """Drop the future of ``request_id``, answered or not."""
        with self._lock:
            self._futures.pop(request_id, None)

    def fail_one(self, request_id: int, error: EosError) -> None:
        """Raise ``error`` in the request that waits for ``request_id``, if there is one."""
        with self._lock:
            future = self._futures.pop(request_id, None)
        if future is not None:
            future.set_exception(error)

    def resolve(self, command: WireMessage) -> None:
        """Pass ``command`` to the request that it answers, if there is one."""
        request_id = getattr(command, "request_id", None)
        with self._lock:
            # CONNECT is answered before any other request is sent; the id of an ERROR that
            # answers it is arbitrary.
            if isinstance(command, commands.Connected | commands.Error) and (
                CONNECT in self._futures
            ):
                request_id = CONNECT
            future = None if request_id is None else self._futures.pop(request_id, None)
        # None: a late answer to a request that timed out, PONG, a notice that needs no action.
        if future is not None:
            future.set_result(command)

    def fail(self, error: EosError) -> None:
        """Raise ``error`` in all pending and all later requests: the connection has failed."""
        with self._lock:
            self._failed = error
            futures = list(self._futures.values())
            self._futures.clear()
        for future in futures:
            future.set_exception(copy.copy(error))


logger = logging.getLogger(__name__)


class ProducerListener(Protocol):
    """The callbacks of a producer. The connection's reading thread calls them."""

    def on_send_receipt(self, acknowledgement: commands.SendReceipt) -> None: ...
    def on_send_error(self, error: commands.SendError) -> None: ...
    def on_closed(self, reason: EosError) -> None: ...


class ConsumerListener(Protocol):
    """The callbacks of a consumer. The connection's reading thread calls them."""

    def on_delivery(self, delivery: Delivery) -> None: ...
    def on_closed(self, reason: EosError) -> None: ...


# A command about one producer or consumer that answers no request.
Notice = (
    commands.SendReceipt | commands.SendError | commands.CloseProducer | CloseConsumer | Delivery
)


class Listeners:
    """The listeners of one connection. Producers and consumers are numbered independently."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._producers: dict[int, ProducerListener] = {}
        self._consumers: dict[int, ConsumerListener] = {}
        self._failed: EosError | None = None

    def add_producer(self, producer_id: int, listener: ProducerListener) -> None:
        """Register ``listener`` for ``producer_id``.

        Raises:
            EosError: the connection has failed; the error that ``fail`` was given.
        """
        with self._lock:
            self._check()
            self._producers[producer_id] = listener

    def replace_producer(
        self, producer_id: int, old: ProducerListener, new: ProducerListener
    ) -> None:
        """Register ``new`` for ``producer_id`` instead of ``old``.

        Raises:
            ConnectionLost: the broker has closed the producer; ``old`` is told.
            EosError: the connection has failed; the error that ``fail`` was given.
        """
        with self._lock:
            self._check()
            if self._producers.get(producer_id) is not old:
                raise ConnectionLost("The broker closed the producer.")
            self._producers[producer_id] = new

    def add_consumer(self, consumer_id: int, listener: ConsumerListener) -> None:
        """Register ``listener`` for ``consumer_id``; errors as in ``add_producer``."""
        with self._lock:
            self._check()
            self._consumers[consumer_id] = listener

    def _check(self) -> None:
        if self._failed is not None:
            raise copy.copy(self._failed)

    def remove_producer(self, producer_id: int) -> None:
        """Stop dispatching to the listener of ``producer_id``."""
        with self._lock:
            self._producers.pop(producer_id, None)

    def remove_consumer(self, consumer_id: int) -> None:
        """Stop dispatching to the listener of ``consumer_id``."""
        with self._lock:
            self._consumers.pop(consumer_id, None)

    def dispatch(self, notice: Notice) -> None:
        """Pass ``notice`` to its listener; drop it if the listener was removed."""
        if isinstance(notice, Delivery | CloseConsumer):
            self._dispatch_to_consumer(notice)
            return
        # Looked up and removed under one lock: otherwise ``replace_producer`` could succeed in
        # between, and the new listener would never learn that the producer is closed.
        with self._lock:
            if isinstance(notice, commands.CloseProducer):
                listener = self._producers.pop(notice.producer_id, None)
            else:
                listener = self._producers.get(notice.producer_id)
        if listener is None:
            return
        if isinstance(notice, commands.SendReceipt):
            listener.on_send_receipt(notice)
        elif isinstance(notice, commands.SendError):
            listener.on_send_error(notice)
        else:
            listener.on_closed(ConnectionLost("The broker closed the producer."))

    def _dispatch_to_consumer(self, notice: Delivery | CloseConsumer) -> None:
        command = notice.command if isinstance(notice, Delivery) else notice
        with self._lock:
            listener = self._consumers.get(command.consumer_id)
        if listener is None:
            return
        if isinstance(notice, Delivery):
            listener.on_delivery(notice)
        else:
            self.remove_consumer(notice.consumer_id)
            listener.on_closed(ConnectionLost("The broker closed the consumer."))

    def fail(self, error: EosError) -> None:
        """Call ``on_closed`` of all listeners: the connection has failed."""
        with self._lock:
            self._failed = error
            listeners: list[ProducerListener | ConsumerListener] = list(self._producers.values())
            listeners += self._consumers.values()
            self._producers.clear()
            self._consumers.clear()
        for listener in listeners:  # without the lock, as listeners run users' code
            try:
                listener.on_closed(copy.copy(error))
            except BaseException:  # also sys.exit(): the others must be told
                logger.exception("A listener's on_closed failed")
