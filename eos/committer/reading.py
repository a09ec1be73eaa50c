"""Reading a topic with ``pulsar-client``: the judge of what is visible is never our own code."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, Protocol

import pulsar

from eos.errors import ConnectionLost, EosError, TopicNotFound, Unauthorized
from eos.ids import MessageId
from eos.transport.security import Security

_KNOWN: Final[dict[str, type[EosError]]] = {
    "AuthenticationError": Unauthorized,
    "AuthorizationError": Unauthorized,
    "TopicNotFound": TopicNotFound,
}
"""The exceptions of pulsar-client that trying again does not help, by name."""


class ReceivedMessage(Protocol):
    """What we use of ``pulsar.Message``."""

    def data(self) -> bytes: ...
    def properties(self) -> dict[str, str]: ...


class Reading:
    """A lazy ``pulsar.Client``: made at first use, kept, closed once.

    Args:
        service_url: as for ``PulsarClient``; the same ``security`` serves both.
        timeout_s: of each operation.
    """

    def __init__(self, service_url: str, security: Security, *, timeout_s: float) -> None:
        self._service_url = service_url
        self._security = security
        self._timeout_s = timeout_s
        self._client: Any = None

    @contextmanager
    def reader(self, topic: str, start: MessageId) -> Iterator[Any]:
        """A non-durable reader of ``topic`` from ``start`` on, that message included.

        Raises:
            ConnectionLost: the broker can't be reached, or refuses.
        """
        first = pulsar.MessageId(start.partition, start.ledger, start.entry, -1)
        with _as_eos_errors(f"Reading {topic}"):
            reader = self._opened().create_reader(topic, first, start_message_id_inclusive=True)
        try:
            yield reader
        finally:
            with contextlib.suppress(Exception):
                reader.close()

    @contextmanager
    def subscription(self, topic: str, name: str) -> Iterator[Any]:
        """A durable subscription from the earliest message on, made when it is not there;
        attached while the block runs.

        Raises:
            ConnectionLost: the broker can't be reached, or another consumer is attached.
        """
        with _as_eos_errors(f"Subscribing to {topic}"):
            consumer = self._opened().subscribe(
                topic,
                name,
                consumer_type=pulsar.ConsumerType.Exclusive,
                initial_position=pulsar.InitialPosition.Earliest,
                receiver_queue_size=1,
            )
        try:
            yield consumer
        finally:
            with contextlib.suppress(Exception):
                consumer.close()

    def _opened(self) -> Any:
        if self._client is None:
            security = self._security
            authentication = None
            if security.method_name == "token":
                authentication = pulsar.AuthenticationToken(security.read_token)
            elif security.method_name == "tls":
                authentication = pulsar.AuthenticationTLS(
                    security.tls_certificate_file, security.tls_private_key_file
                )
            self._client = pulsar.Client(
                self._service_url,
                authentication=authentication,
                operation_timeout_seconds=max(1, int(self._timeout_s)),
                tls_trust_certs_file_path=security.tls_trust_certs_file,
                tls_validate_hostname=True,
                # What goes wrong reaches us as exceptions; its console lines would be noise.
                logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull),
            )
        return self._client

    def close(self) -> None:
        """Close the client, when it was ever opened."""
        client, self._client = self._client, None
        if client is not None:
            with contextlib.suppress(Exception):
                client.close()


def read_until(reader: Any, deadline: float) -> Iterator[ReceivedMessage]:
    """Messages in order, until ``deadline`` (``time.monotonic``) passes.

    A pause proves nothing and ends nothing: after a restart a topic's transaction buffer takes up
    to 20 s to recover, and reads come back empty until then (measured).
    """
    while (left_s := deadline - time.monotonic()) > 0:
        try:
            yield reader.read_next(timeout_millis=max(1, int(min(left_s, 1.0) * 1000)))
        except pulsar.Timeout:
            continue


@contextmanager
def _as_eos_errors(doing: str) -> Iterator[None]:
    try:
        yield
    except EosError:
        raise
    except Exception as error:  # pulsar-client's exceptions have no useful tree
        cls = _KNOWN.get(type(error).__name__, ConnectionLost)
        raise cls(f"{doing}: {type(error).__name__}: {error}.") from None
