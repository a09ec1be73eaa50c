"""Finds the broker of a topic and connects to it, by redirects and proxies."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Final

from eos.client._pool import Pool, Route
from eos.errors import (
    ConfigurationError,
    ConnectionLost,
    EosError,
    ProtocolError,
    Retriable,
    TopicNotFound,
    Untrusted,
    broker_error,
    no_usable_host,
)
from eos.ids import MAX_PARTITIONS, TopicName
from eos.transport.address import Address, ClusterRules, parse_service_url
from eos.transport.auth import Auth
from eos.transport.blocking_connection import BlockingConnection
from eos.transport.connection import Connection
from eos.wire import commands

MAX_REDIRECTS: Final = 20


class Lookup:
    """The connections of one client, by topic.

    Args:
        service_url: one or more brokers or proxies, tried in turn.
        rules: the listener's name, and the prefix of subscription names for users of this object.
        timeout_s: of each lookup, including its requests and connections.
    """

    def __init__(
        self, service_url: str, auth: Auth, rules: ClusterRules, *, timeout_s: float
    ) -> None:
        self.rules = rules
        self._service = parse_service_url(service_url)
        self._timeout_s = timeout_s
        self._auth = auth
        self._pool = Pool(auth)

    @property
    def service(self) -> tuple[Address, ...]:
        """The addresses of the service URL; the last one that answered comes first."""
        return self._service

    def broker_of(self, topic: str) -> Connection:
        """Return a shared connection to the broker that owns ``topic``, an exact name.

        Raises:
            EosError: no broker answers in time, or the lookup failed.
        """
        deadline = time.monotonic() + self._timeout_s
        return self._pool.permanent(self._find(topic, deadline), deadline)

    def dedicated_connection(self, topic: str) -> BlockingConnection:
        """Return an unshared connection to the broker that owns ``topic``, for one thread.

        The caller closes it.

        Raises:
            EosError: no broker answers in time, or the lookup failed.
        """
        deadline = time.monotonic() + self._timeout_s
        address, proxy_to = self._find(topic, deadline)
        left_s = max(0.0, deadline - time.monotonic())
        return BlockingConnection.open(address, self._auth, timeout_s=left_s, proxy_to=proxy_to)

    def _find(self, topic: str, deadline: float) -> Route:
        connection = self._any_broker(deadline)
        authoritative = False
        with ExitStack() as redirects:  # close connections that only redirected
            for _ in range(MAX_REDIRECTS):
                answer = self._ask(connection, topic, deadline, authoritative=authoritative)
                route = self._route(answer, connection.address)
                if answer.response == commands.LookupType.CONNECT:
                    return route
                connection = redirects.enter_context(self._pool.temporary(route, deadline))
                authoritative = answer.authoritative
        raise ConnectionLost(f"Looking up {topic}: more than {MAX_REDIRECTS} redirects.")

    def _ask(
        self, connection: Connection, topic: str, deadline: float, *, authoritative: bool
    ) -> commands.LookupResponse:
        answer = connection.request(
            lambda request_id: commands.Lookup(
                topic=topic,
                request_id=request_id,
                authoritative=authoritative,
                advertised_listener_name=self.rules.listener_name,
            ),
            commands.LookupResponse,
            timeout_s=max(0.0, deadline - time.monotonic()),
            doing=f"Looking up {topic}",
        )
        if answer.response not in (commands.LookupType.CONNECT, commands.LookupType.REDIRECT):
            if (name := self.rules.listener_name) and f"{name} listener" in answer.message:
                raise ConfigurationError(
                    f"{connection.address} has no advertised listener {name!r}.",
                    hint="listener_name must be one of the brokers' advertisedListeners.",
                )
            raise broker_error(answer.error or 0, answer.message, doing=f"Looking up {topic}")
        return answer

    def _route(self, answer: commands.LookupResponse, asked: Address) -> Route:
        """Return the route of the answer from ``asked``."""
        url = answer.broker_url_tls if asked.tls else answer.broker_url
        if not url:
            raise ProtocolError(
                f"The lookup has no broker address for {'TLS' if asked.tls else 'plain TCP'}.",
                hint="Use the scheme that the brokers advertise: pulsar:// or pulsar+ssl://.",
            )
        try:
            (broker,) = parse_service_url(url)
        except (EosError, ValueError):
            raise ProtocolError(f"The lookup has an invalid address: {url[:100]!r}.") from None
        if broker.tls != asked.tls:
            # Without TLS the token would be readable on the network.
            raise ProtocolError(f"The lookup changes between TLS and TCP: {broker} by {asked}.")
        if answer.proxy_through_service_url:
            return asked, broker.host_port
        return broker, None

    def any_broker(self) -> Connection:
        """Return a connection to the first address of the service URL that is a usable broker.

        Raises:
            ConnectionLost, BrokerNotReady, ProtocolError: none is in time; the message has each.
            EosError: one refuses this client.
        """
        return self._any_broker(time.monotonic() + self._timeout_s)

    def _any_broker(self, deadline: float) -> Connection:
        problems: dict[str, EosError] = {}
        service = self._service
        for number, address in enumerate(service):
            # A silent address leaves time for the next ones.
            share_s = (deadline - time.monotonic()) / (len(service) - number)
            try:
                connection = self._pool.permanent((address, None), time.monotonic() + share_s)
            except (Retriable, ProtocolError, Untrusted) as error:  # not a broker, or not ready
                problems[str(address)] = error
                continue
            # The next call begins with it, instead of waiting for a dead one again.
            self._service = (address, *(other for other in self._service if other != address))
            return connection
        raise no_usable_host("service_url", problems)

    def partition_count(self, topic: TopicName, *, create: bool = False) -> int:
        """Return the number of partitions of ``topic``; 0 if it is not partitioned.

        Args:
            create: let the broker create a missing topic, by its policies.

        Raises:
            TopicNotFound: the topic does not exist.
        """
        doing = f"Asking for the partitions of {topic}"
        deadline = time.monotonic() + self._timeout_s
        answer = self._any_broker(deadline).request(
            lambda request_id: commands.PartitionedMetadata(
                topic=str(topic), request_id=request_id, metadata_auto_creation_enabled=create
            ),
            commands.PartitionedMetadataResponse,
            timeout_s=max(0.0, deadline - time.monotonic()),
            doing=doing,
        )
        if answer.error is not None or answer.response != 0:
            error = broker_error(answer.error or 0, answer.message, doing=doing)
            if isinstance(error, TopicNotFound):
                error.hint = "Create the topic, or open the producer with create=True."
            raise error
        if answer.partitions > MAX_PARTITIONS:
            raise ProtocolError(
                f"The broker answers that {topic} has {answer.partitions} partitions."
            )
        return answer.partitions

    def schema(
        self, topic: TopicName, version: bytes | None = None
    ) -> tuple[commands.SchemaInfo, bytes] | None:
        """Return the newest schema of ``topic``, or one ``version``, with its version; or None.

        Raises:
            EosError: the broker refuses, or does not answer.
        """
        doing = f"Asking for the schema of {topic}"
        answer = self.any_broker().request(
            lambda request_id: commands.GetSchema(
                request_id=request_id, topic=str(topic), schema_version=version
            ),
            commands.GetSchemaResponse,
            timeout_s=self._timeout_s,
            doing=doing,
        )
        if answer.error is None:
            info = answer.schema
            return None if info is None else (info, answer.schema_version)
        error = broker_error(answer.error, answer.message, doing=doing)
        if isinstance(error, TopicNotFound):  # the broker's answer also if there is no schema
            return None
        raise error

    def topics(self, namespace: str) -> list[str]:
        """Return the persistent topics in ``tenant/namespace``, sorted.

        Raises:
            EosError: the broker refuses, or does not answer.
        """
        answer = self.any_broker().request(
            lambda request_id: commands.GetTopics(
                request_id=request_id, namespace=namespace, mode=commands.TopicsMode.PERSISTENT
            ),
            commands.GetTopicsResponse,
            timeout_s=self._timeout_s,
            doing=f"Asking for the topics of {namespace}",
        )
        return sorted(answer.topics)

    def close(self) -> None:
        """Close every connection. May be called twice."""
        self._pool.close()
