"""Who hears what the broker says about a producer or a consumer."""

from __future__ import annotations

import copy
import logging
import threading
from typing import Protocol

from eos.errors import ConnectionLost, EosError
from eos.wire import commands
from eos.wire.commands import CloseConsumer
from eos.wire.frames import Delivery

logger = logging.getLogger(__name__)


class ProducerListener(Protocol):
    """What a producer hears from its connection, always from the reading thread."""

    def on_send_receipt(self, acknowledgement: commands.SendReceipt) -> None: ...
    def on_send_error(self, error: commands.SendError) -> None: ...
    def on_closed(self, reason: EosError) -> None: ...


class ConsumerListener(Protocol):
    """What a consumer hears from its connection, always from the reading thread."""

    def on_delivery(self, delivery: Delivery) -> None: ...
    def on_closed(self, reason: EosError) -> None: ...


Notice = (
    commands.SendReceipt | commands.SendError | commands.CloseProducer | CloseConsumer | Delivery
)
"""What the broker says about one producer or consumer without having been asked."""


class Listeners:
    """The producers and consumers of one connection. Their numbers are two series."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._producers: dict[int, ProducerListener] = {}
        self._consumers: dict[int, ConsumerListener] = {}
        self._failed: EosError | None = None

    def add_producer(self, producer_id: int, listener: ProducerListener) -> None:
        """Tell ``listener`` all that concerns ``producer_id``, from now on.

        Raises:
            EosError: what ``fail`` was told.
        """
        with self._lock:
            self._check()
            self._producers[producer_id] = listener

    def replace_producer(
        self, producer_id: int, old: ProducerListener, new: ProducerListener
    ) -> None:
        """Tell ``new`` what was told to ``old`` until now.

        Raises:
            ConnectionLost: the broker has closed the producer, and ``old`` is told, or will be.
            EosError: what ``fail`` was told.
        """
        with self._lock:
            self._check()
            if self._producers.get(producer_id) is not old:
                raise ConnectionLost("The broker closed the producer.")
            self._producers[producer_id] = new

    def add_consumer(self, consumer_id: int, listener: ConsumerListener) -> None:
        """The same for a consumer."""
        with self._lock:
            self._check()
            self._consumers[consumer_id] = listener

    def _check(self) -> None:
        if self._failed is not None:
            raise copy.copy(self._failed)

    def forget_producer(self, producer_id: int) -> None:
        """Nothing more is told."""
        with self._lock:
            self._producers.pop(producer_id, None)

    def forget_consumer(self, consumer_id: int) -> None:
        """Nothing more is told."""
        with self._lock:
            self._consumers.pop(consumer_id, None)

    def tell(self, notice: Notice) -> None:
        """Hand ``notice`` to whom it concerns; what is for nobody any more is dropped."""
        if isinstance(notice, Delivery | CloseConsumer):
            self._tell_consumer(notice)
        else:
            self._tell_producer(notice)

    def _tell_producer(
        self, notice: commands.SendReceipt | commands.SendError | commands.CloseProducer
    ) -> None:
        # Looked for and forgotten in one step: it may be replaced meanwhile.
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

    def _tell_consumer(self, notice: Delivery | CloseConsumer) -> None:
        command = notice.command if isinstance(notice, Delivery) else notice
        with self._lock:
            listener = self._consumers.get(command.consumer_id)
        if listener is None:
            return
        if isinstance(notice, Delivery):
            listener.on_delivery(notice)
        else:
            self.forget_consumer(notice.consumer_id)
            listener.on_closed(ConnectionLost("The broker closed the consumer."))

    def fail(self, error: EosError) -> None:
        """The connection is gone: tell everyone, under no lock, since that runs users' code."""
        with self._lock:
            self._failed = error
            listeners: list[ProducerListener | ConsumerListener] = list(self._producers.values())
            listeners += self._consumers.values()
            self._producers.clear()
            self._consumers.clear()
        for listener in listeners:
            try:
                listener.on_closed(copy.copy(error))
            except Exception:
                logger.exception("a producer or consumer")
