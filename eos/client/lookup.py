"""Which broker serves a topic, and the connection to it.

Follows redirects, and goes through a proxy when the answer says so. Connections are shared: one
for each broker (and each broker behind a proxy).
"""

from __future__ import annotations

import threading
from typing import Final

from eos.errors import (
    ConnectionLost,
    EosError,
    Fatal,
    ProtocolError,
    Retriable,
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


_Key = tuple[Address, str | None]
"""Where a connection leads: the address that was dialled, and the broker behind that proxy."""


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
        self._gates: dict[_Key, threading.Lock] = {}
        self._connections: dict[_Key, Connection] = {}
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
            doing=f"Looking up {topic}",
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
        except (EosError, ValueError):
            raise ProtocolError(f"The look-up named no address: {url[:100]!r}.") from None
        if broker.tls != asked.tls:
            # Going on would show our token to whoever listens.
            raise ProtocolError(f"The look-up left TLS, or came to it: {broker} by {asked}.")
        if answer.proxy_through_service_url:
            return self._connect(asked, proxy_to=broker.host_port)
        return self._connect(broker)

    def any_broker(self) -> Connection:
        """A connection to the first address of the service URL that answers.

        Raises:
            ConnectionLost, BrokerNotReady: none does.
            EosError: one refuses us.
        """
        last: EosError | None = None
        for address in self._service:
            try:
                connection = self._connect(address)
            except Retriable as error:
                last = error
                continue
            # The next call begins with it, and does not wait for a dead one again.
            self._service = (address, *(other for other in self._service if other != address))
            return connection
        raise last or ConnectionLost("The service URL names no address.")

    def partition_count(self, topic: TopicName, *, create: bool = False) -> int:
        """How many partitions ``topic`` has; 0 when it is not partitioned.

        Args:
            create: let the broker create a topic that does not exist, as its policies say.

        Raises:
            TopicNotFound: there is no such topic.
        """
        doing = f"Asking for the partitions of {topic}"
        answer = self.any_broker().request(
            lambda request_id: commands.PartitionedMetadata(
                topic=str(topic), request_id=request_id, metadata_auto_creation_enabled=create
            ),
            commands.PartitionedMetadataResponse,
            timeout_s=self._timeout_s,
            doing=doing,
        )
        if answer.error is not None or answer.response != 0:
            error = broker_error(answer.error or 0, answer.message, doing=doing)
            if isinstance(error, TopicNotFound):
                error.hint = "Create the topic, or set create_topics=True."
            raise error
        if answer.partitions > MAX_PARTITIONS:
            raise ProtocolError(f"{topic} has {answer.partitions} partitions, says the broker.")
        return answer.partitions

    def _connect(self, address: Address, proxy_to: str | None = None) -> Connection:
        key = (address, proxy_to)
        with self._lock:
            gate = self._gates.setdefault(key, threading.Lock())
        with gate:  # one connection for each key; other keys, and close(), do not wait for it
            with self._lock:
                self._check_open()
                known = self._connections.get(key)
            if known is not None and known.is_alive:
                return known
            connection = Connection.open(
                address, self._security, timeout_s=self._timeout_s, proxy_to=proxy_to
            )
            with self._lock:
                if not self._closed:
                    self._connections[key] = connection
                    return connection
        connection.close()
        raise _closed()

    def _check_open(self) -> None:
        if self._closed:
            raise _closed()

    def close(self) -> None:
        """Close every connection. May be called twice."""
        with self._lock:
            self._closed = True
            connections = list(self._connections.values())
            self._connections.clear()
        for connection in connections:
            connection.close()


def _closed() -> Fatal:
    return Fatal("The client is closed.")
