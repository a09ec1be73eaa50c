"""Finds the broker of a topic, and keeps one shared connection per broker."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeVar

from eos.errors import (
    BrokerNotReady,
    ConfigurationError,
    ConnectionLost,
    EosError,
    Fatal,
    ProtocolError,
    Retriable,
    TopicNotFound,
    Unreachable,
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
_CLOSED: Final = "The client is closed."
_SHARED: Final = 0
# If the service URL is one address, it may be a balancer. One that does not know yet that a broker
# is dead accepts connections and closes them; the next one goes to another broker.
BALANCER_TRIES: Final = 5
_BALANCER_PAUSE_S: Final = 0.1
_ADVERTISED: Final = (
    "The brokers advertise this address: if it can't be reached from here, set listener_name "
    "(listenerName, --listener-name) to one of their advertisedListeners that can, or the service "
    "URL to a Pulsar proxy."
)

T = TypeVar("T")

Route = tuple[Address, str | None]
"""The address to connect to; and if that is a proxy, the broker that it forwards to."""


@dataclass
class _Slot:
    """The connection of a route."""

    gate: threading.Lock = field(default_factory=threading.Lock)  # held while connecting
    connection: Connection | None = None
    users: int = 0  # blocks that use it
    is_permanent: bool = False

    @property
    def is_needed(self) -> bool:
        alive = self.connection is not None and self.connection.is_alive
        return self.users > 0 or (self.is_permanent and alive)


class Pool:
    """Connections by route. Temporary ones are closed after their last user, dead ones dropped."""

    # So a peer that redirects from address to address can't accumulate connections.

    def __init__(self, auth: Auth) -> None:
        self._auth = auth
        self._lock = threading.Lock()
        self._slots: dict[tuple[Route, int], _Slot] = {}
        self._closed = False

    @property
    def connections(self) -> list[Connection]:
        """The current connections, including dead ones."""
        with self._lock:
            return [slot.connection for slot in self._slots.values() if slot.connection]

    @contextmanager
    def temporary(self, route: Route, deadline: float) -> Iterator[Connection]:
        """Yield a connection for the block; then close it, unless it is also permanent.

        Raises:
            EosError: as ``Connection.open``; no connection by ``deadline`` (``time.monotonic``).
        """
        slot = self._enter(route, _SHARED)
        try:
            yield self._connected(slot, route, deadline)
        finally:
            self._leave(slot)

    def permanent(self, route: Route, deadline: float, number: int = _SHARED) -> Connection:
        """Return a connection that stays open until it dies or the pool is closed.

        Callers with another ``number`` get another one.

        Raises:
            EosError: as ``Connection.open``.
        """
        slot = self._enter(route, number)
        try:
            connection = self._connected(slot, route, deadline)
            slot.is_permanent = True
            return connection
        finally:
            self._leave(slot)

    def _enter(self, route: Route, number: int) -> _Slot:
        with self._lock:
            if self._closed:
                raise Fatal(_CLOSED)
            slot = self._slots.setdefault((route, number), _Slot())
            slot.users += 1
            return slot

    def _connected(self, slot: _Slot, route: Route, deadline: float) -> Connection:
        address, proxy_to = route
        with slot.gate:  # other routes, and close(), do not wait for it
            known = slot.connection
            if known is not None and known.is_alive:
                return known
            left_s = max(0.0, deadline - time.monotonic())
            opened = Connection.open(address, self._auth, timeout_s=left_s, proxy_to=proxy_to)
            with self._lock:
                if not self._closed:
                    slot.connection = opened
                    return opened
        opened.close()
        raise Fatal(_CLOSED)

    def _leave(self, left: _Slot) -> None:
        with self._lock:
            left.users -= 1
            idle = [key for key, slot in self._slots.items() if not slot.is_needed]
            dropped = [self._slots.pop(key) for key in idle]
        for slot in dropped:
            if slot.connection is not None:
                slot.connection.close()

    def close(self) -> None:
        """Close every connection. May be called twice."""
        with self._lock:
            self._closed = True
            slots = list(self._slots.values())
            self._slots.clear()
        for slot in slots:
            if slot.connection is not None:
                slot.connection.close()


class Lookup:
    """The connections of one client, by topic.

    Args:
        service_url: one or more brokers or proxies, tried in turn.
        timeout_s: of each lookup, including its requests and connections; and of all other requests
            of the client.
    """

    def __init__(
        self, service_url: str, auth: Auth, rules: ClusterRules, *, timeout_s: float
    ) -> None:
        self.rules = rules
        # Ids must be unique per connection; they are unique in the client, and never reused.
        self.consumer_ids = itertools.count()
        self._service = parse_service_url(service_url)
        self.timeout_s = timeout_s
        self._auth = auth
        self._pool = Pool(auth)
        self._own_numbers = itertools.count(_SHARED + 1)

    @property
    def service(self) -> tuple[Address, ...]:
        """The addresses of the service URL; the last one that answered comes first."""
        return self._service

    def broker_of(self, topic: str) -> Connection:
        """Return a shared connection to the broker that owns ``topic``, an exact name.

        Raises:
            EosError: no broker answers in time, or the lookup failed.
        """
        return self._broker_of(topic, time.monotonic() + self.timeout_s)

    def _broker_of(self, topic: str, deadline: float) -> Connection:
        return self._open(self._pool.permanent, self._find(topic, deadline), deadline)

    def own_connection(self, topic: str) -> Connection:
        """Return an unshared connection, which the caller closes, or ``close``; else as above."""
        deadline = time.monotonic() + self.timeout_s
        connect = partial(self._pool.permanent, number=next(self._own_numbers))
        return self._open(connect, self._find(topic, deadline), deadline)

    def dedicated_connection(self, topic: str) -> BlockingConnection:
        """Return an unshared connection for one thread, which the caller closes.

        Raises:
            EosError: no broker answers in time, or the lookup failed.
        """

        def connect(route: Route, deadline: float) -> BlockingConnection:
            left_s = max(0.0, deadline - time.monotonic())
            return BlockingConnection.open(
                route[0], self._auth, timeout_s=left_s, proxy_to=route[1]
            )

        deadline = time.monotonic() + self.timeout_s
        return self._open(connect, self._find(topic, deadline), deadline)

    def _open(self, connect: Callable[[Route, float], T], route: Route, deadline: float) -> T:
        address, _ = route
        tries = BALANCER_TRIES if self._service == (address,) else 1
        while True:
            tries -= 1
            try:
                return connect(route, deadline)
            except Unreachable as error:
                if address not in self._service:
                    error.hint = f"{error.hint} {_ADVERTISED}"
                raise
            except (ConnectionLost, BrokerNotReady):
                if not tries or time.monotonic() + _BALANCER_PAUSE_S >= deadline:
                    raise
            time.sleep(_BALANCER_PAUSE_S)

    def _find(self, topic: str, deadline: float) -> Route:
        connection = self._any_broker(deadline)
        authoritative = False
        with ExitStack() as redirects:  # close connections that only redirected

            def follow(route: Route, deadline: float) -> Connection:
                return redirects.enter_context(self._pool.temporary(route, deadline))

            for _ in range(MAX_REDIRECTS):
                answer = self._ask(connection, topic, deadline, authoritative=authoritative)
                route = self._route(answer, connection.address)
                if answer.response == commands.LookupType.CONNECT:
                    return route
                connection = self._open(follow, route, deadline)
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
        return self._any_broker(time.monotonic() + self.timeout_s)

    def _any_broker(self, deadline: float) -> Connection:
        problems: dict[str, EosError] = {}
        service = self._service
        for number, address in enumerate(service):
            # A silent address leaves time for the next ones.
            now = time.monotonic()
            until = now + (deadline - now) / (len(service) - number)
            try:
                connection = self._open(self._pool.permanent, (address, None), until)
            except (Retriable, ProtocolError, Untrusted) as error:  # not a broker, or not ready
                problems[str(address)] = error
                continue
            # The next call begins with it, instead of waiting for a dead one again.
            self._service = (address, *(other for other in self._service if other != address))
            return connection
        raise no_usable_host("service_url", problems)

    def partition_count(self, topic: TopicName, *, create: bool = False) -> int:
        """Return the number of partitions of ``topic``; 0 if it is not partitioned.

        ``create``: let the broker create a missing topic, by its policies.

        Raises:
            TopicNotFound: the topic does not exist.
        """
        doing = f"Asking for the partitions of {topic}"
        deadline = time.monotonic() + self.timeout_s
        connection = self._any_broker(deadline)
        if connection.may_be_proxy and not create:
            # The proxy of 4.0.8 forgets this flag in its first request to each broker, which may
            # then create the topic; and it changes errors. It forwards to a topic's broker as is.
            connection = self._broker_of(str(topic), deadline)
        answer = connection.request(
            lambda request_id: commands.PartitionedMetadata(
                topic=str(topic), request_id=request_id, metadata_auto_creation_enabled=create
            ),
            commands.PartitionedMetadataResponse,
            timeout_s=max(0.0, deadline - time.monotonic()),
            doing=doing,
        )
        if answer.error is not None or answer.response != 0:
            raise broker_error(answer.error or 0, answer.message, doing=doing)
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
            timeout_s=self.timeout_s,
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
            timeout_s=self.timeout_s,
            doing=f"Asking for the topics of {namespace}",
        )
        return sorted(answer.topics)

    def close(self) -> None:
        """Close every connection. May be called twice."""
        self._pool.close()
