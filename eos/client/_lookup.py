"""Which broker serves a topic, and the connection to it.

Follows redirects, and goes through a proxy when the answer says so.
"""

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
from eos.transport.address import Address, parse_service_url
from eos.transport.auth import Auth
from eos.transport.blocking_connection import BlockingConnection
from eos.transport.connection import Connection
from eos.transport.rules import ClusterRules
from eos.wire import commands

MAX_REDIRECTS: Final = 20


class Lookup:
    """Connections of one client, found by topic.

    Args:
        service_url: one or more brokers or proxies, tried in turn.
        rules: name the listener, and what others, who have only this, call their subscriptions.
        timeout_s: for each look-up, with all that it asks and connects to on its way.
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
        """The addresses of the service URL, the one that answered last first."""
        return self._service

    def broker_of(self, topic: str) -> Connection:
        """A connection to the broker that owns ``topic``, an exact name.

        Raises:
            EosError: no broker answers in time, or the look-up failed.
        """
        deadline = time.monotonic() + self._timeout_s
        return self._pool.kept(self._find(topic, deadline), deadline)

    def dedicated_connection(self, topic: str) -> BlockingConnection:
        """A connection to the broker that owns ``topic``, for one thread and nobody else; to be
        closed by whoever asked for it.

        Raises:
            EosError: no broker answers in time, or the look-up failed.
        """
        deadline = time.monotonic() + self._timeout_s
        address, proxy_to = self._find(topic, deadline)
        left_s = max(0.0, deadline - time.monotonic())
        return BlockingConnection.open(address, self._auth, timeout_s=left_s, proxy_to=proxy_to)

    def _find(self, topic: str, deadline: float) -> Route:
        connection = self._any_broker(deadline)
        authoritative = False
        with ExitStack() as way:  # what was only passed through is closed again
            for _ in range(MAX_REDIRECTS):
                answer = self._ask(connection, topic, deadline, authoritative=authoritative)
                place = self._place(answer, connection.address)
                if answer.response == commands.LookupType.CONNECT:
                    return place
                connection = way.enter_context(self._pool.borrowed(place, deadline))
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
                    hint="listener_name has to be one of the brokers' advertisedListeners.",
                )
            raise broker_error(answer.error or 0, answer.message, doing=f"Looking up {topic}")
        return answer

    def _place(self, answer: commands.LookupResponse, asked: Address) -> Route:
        """Where the answer of ``asked`` leads."""
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
            return asked, broker.host_port
        return broker, None

    def any_broker(self) -> Connection:
        """A connection to the first address of the service URL that answers as a broker does.

        Raises:
            ConnectionLost, BrokerNotReady, ProtocolError: none does in time; names each.
            EosError: one refuses us.
        """
        return self._any_broker(time.monotonic() + self._timeout_s)

    def _any_broker(self, deadline: float) -> Connection:
        problems: dict[str, EosError] = {}
        service = self._service
        for number, address in enumerate(service):
            # One that is silent leaves time for those after it.
            share_s = (deadline - time.monotonic()) / (len(service) - number)
            try:
                connection = self._pool.kept((address, None), time.monotonic() + share_s)
            except (Retriable, ProtocolError, Untrusted) as error:  # it is no broker, or not now
                problems[str(address)] = error
                continue
            # The next call begins with it, and does not wait for a dead one again.
            self._service = (address, *(other for other in self._service if other != address))
            return connection
        raise no_usable_host("service_url", problems)

    def partition_count(self, topic: TopicName, *, create: bool = False) -> int:
        """How many partitions ``topic`` has; 0 when it is not partitioned.

        Args:
            create: let the broker create a topic that does not exist, as its policies say.

        Raises:
            TopicNotFound: there is no such topic.
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
            raise ProtocolError(f"{topic} has {answer.partitions} partitions, says the broker.")
        return answer.partitions

    def schema(
        self, topic: TopicName, version: bytes | None = None
    ) -> tuple[commands.SchemaInfo, bytes] | None:
        """The newest schema of ``topic``, of all its partitions, or one version of it, and which
        version that is; None: it has none.

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
        if isinstance(error, TopicNotFound):  # the broker's word for "no schema", too
            return None
        raise error

    def topics(self, namespace: str) -> list[str]:
        """The persistent topics in ``tenant/namespace``, in order of their names.

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
