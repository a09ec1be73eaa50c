"""Which broker serves a topic, and the connection to it.

Follows redirects, and goes through a proxy when the answer says so. Connections are shared: one
for each broker (and each broker behind a proxy).
"""

from __future__ import annotations

import contextlib
import threading
from typing import Final

from eos.errors import (
    ConnectionLost,
    EosError,
    ProtocolError,
    TopicNotFound,
    broker_error,
)
from eos.ids import TopicName
from eos.transport.address import Address, parse_service_url
from eos.transport.connection import Connection
from eos.transport.security import Security
from eos.wire import commands

MAX_REDIRECTS: Final = 20
MAX_PARTITIONS: Final = 100_000
"""More than any cluster has: a larger answer is broken, and we would allocate by it."""


class Lookup:
    """Connections of one client, found by topic.

    Args:
        service_url: one or more brokers or proxies, tried in turn.
        timeout_s: for each connection and each request.
    """

    def __init__(self, service_url: str, security: Security, *, timeout_s: float) -> None:
        self._service = parse_service_url(service_url)
        self._security = security
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._connections: dict[tuple[Address, str | None], Connection] = {}
        self._closed = False

    def broker_of(self, topic: str) -> Connection:
        """A connection to the broker that owns ``topic``, an exact name.

        Raises:
            EosError: no broker answers, or the look-up failed.
        """
        connection = self.any_broker()
        authoritative = False
        for _ in range(MAX_REDIRECTS):
            answer = self._ask(connection, topic, authoritative=authoritative)
            connection = self._follow(answer, connection.address)
            if answer.response == commands.LookupType.CONNECT:
                return connection
            authoritative = answer.authoritative
        raise ConnectionLost(f"Looking up {topic}: more than {MAX_REDIRECTS} redirects.")

    def _ask(
        self, connection: Connection, topic: str, *, authoritative: bool
    ) -> commands.LookupResponse:
        answer = connection.request(
            lambda request_id: commands.Lookup(
                topic=topic, request_id=request_id, authoritative=authoritative
            ),
            commands.LookupResponse,
            timeout_s=self._timeout_s,
        )
        if answer.response not in (commands.LookupType.CONNECT, commands.LookupType.REDIRECT):
            raise broker_error(answer.error or 0, answer.message, doing=f"Looking up {topic}")
        return answer

    def _follow(self, answer: commands.LookupResponse, asked: Address) -> Connection:
        url = answer.broker_url_tls if asked.tls else answer.broker_url
        if not url:
            raise ProtocolError(
                f"The look-up named no broker address for {'TLS' if asked.tls else 'plain TCP'}.",
                hint="Use the scheme that the brokers advertise: pulsar:// or pulsar+ssl://.",
            )
        try:
            (broker,) = parse_service_url(url)
        except (EosError, ValueError) as error:
            raise ProtocolError(f"The look-up named a malformed address: {error}.") from error
        if broker.tls != asked.tls:
            # Going on would show our token to whoever listens.
            raise ProtocolError(f"The look-up left TLS, or came to it: {broker} by {asked}.")
        if answer.proxy_through_service_url:
            return self._connect(asked, proxy_to=broker.host_port)
        return self._connect(broker)

    def any_broker(self) -> Connection:
        """A connection to the first address of the service URL that answers.

        Raises:
            ConnectionLost: none does.
        """
        last: EosError | None = None
        for address in self._service:
            try:
                return self._connect(address)
            except ConnectionLost as error:
                last = error
        raise last or ConnectionLost("The service URL names no address.")

    def partition_count(self, topic: TopicName) -> int:
        """How many partitions ``topic`` has; 0 when it is not partitioned. Creates nothing.

        Raises:
            TopicNotFound: there is no such topic.
        """
        answer = self.any_broker().request(
            lambda request_id: commands.PartitionedMetadata(
                topic=str(topic), request_id=request_id, metadata_auto_creation_enabled=False
            ),
            commands.PartitionedMetadataResponse,
            timeout_s=self._timeout_s,
        )
        if answer.error is not None or answer.response != 0:
            error = broker_error(
                answer.error or 0, answer.message, doing=f"Asking for the partitions of {topic}"
            )
            if isinstance(error, TopicNotFound):
                error.hint = "Create the topic, or set create_topics=True."
            raise error
        if answer.partitions > MAX_PARTITIONS:
            raise ProtocolError(f"{topic} has {answer.partitions} partitions, says the broker.")
        return answer.partitions

    def _connect(self, address: Address, proxy_to: str | None = None) -> Connection:
        key = (address, proxy_to)
        with self._lock:
            if self._closed:
                raise ConnectionLost("The client is closed.")
            known = self._connections.get(key)
            if known is not None and known.is_alive:
                return known
            # Connecting under the lock keeps it at one connection for each broker.
            connection = Connection.open(
                address, self._security, timeout_s=self._timeout_s, proxy_to=proxy_to
            )
            self._connections[key] = connection
            return connection

    def close(self) -> None:
        """Close every connection."""
        with self._lock:
            self._closed = True
            connections = list(self._connections.values())
            self._connections.clear()
        for connection in connections:
            with contextlib.suppress(EosError):
                connection.close()
