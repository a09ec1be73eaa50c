"""``PulsarCluster``: several brokers and bookies, each in its own process."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, Self

from eos.admin import Transport
from eos.errors import BrokerNotReady, ConfigurationError
from eos.testing import _settings as settings
from eos.testing import maven
from eos.testing._node import (
    BookieNode,
    BrokerNode,
    ClusterNode,
    Machine,
    bookie_node,
    metadata_store_node,
)
from eos.testing._readiness import relevant_tail
from eos.testing.jvm import Jvm, need_java
from eos.transport.auth import Auth

COORDINATORS: Final = 4  # several for each broker of a small cluster; Pulsar's default is 16
_ADMIN_TIMEOUT_S: Final = 60.0
_SETUP: Final = "org.apache.pulsar.PulsarClusterMetadataSetup"
_POLL_S: Final = 0.1


class PulsarCluster:
    """A Pulsar cluster on free ports of this machine, to test the failure of single servers.

    The metadata store (ZooKeeper), each bookie and each broker runs in its own JVM, from jars that
    Maven resolves once. Each entry is stored on two bookies if there are two. With two bookies,
    writes fail while one is dead; with three, one may die. A dead server is noticed after 10 s;
    then its topics and coordinators move. A context manager; nothing is left behind, even if this
    process is killed.

    Args:
        brokers, bookies: their numbers.
        data_dir: the folder of the data, kept at the end and reusable. None: temporary.
        config: settings of broker.conf for all brokers; they override the defaults of eos.
        port, admin_port: of the first broker, the others follow; 0: free ones.
        ready_timeout_s: timeout of each server's start.
        pulsar_version: see ``PulsarStandalone``.

    Attributes:
        brokers, bookies, metadata_store: the servers, after the start.
    """

    def __init__(
        self,
        brokers: int = 2,
        bookies: int = 2,
        data_dir: str | os.PathLike[str] | None = None,
        config: Mapping[str, str] | None = None,
        *,
        port: int = 0,
        admin_port: int = 0,
        ready_timeout_s: float = 90.0,
        pulsar_version: str | None = None,
    ) -> None:
        if brokers < 1 or bookies < 1:
            raise ConfigurationError("A cluster needs at least one broker and one bookie.")
        if port and admin_port and abs(port - admin_port) < brokers:
            raise ConfigurationError(f"Two listeners have one port: {port=}, {admin_port=}.")
        self._counts = brokers, bookies
        self._data_dir = None if data_dir is None else Path(data_dir)
        self._config = dict(config or {})
        self._first_ports = port, admin_port
        self._ready_timeout_s = ready_timeout_s
        self._version = maven.pulsar_version(pulsar_version)
        self.brokers: list[BrokerNode] = []
        self.bookies: list[BookieNode] = []
        self._metadata_store: ClusterNode | None = None

    @property
    def metadata_store(self) -> ClusterNode:
        """The metadata store's server.

        Raises:
            BrokerNotReady: the cluster is not started.
        """
        if self._metadata_store is None:
            raise BrokerNotReady("The cluster is not started.", hint="Call start() first.")
        return self._metadata_store

    @property
    def nodes(self) -> list[ClusterNode]:
        """All servers, in the order in which they start."""
        return [self.metadata_store, *self.bookies, *self.brokers]

    def start(self) -> Self:
        """Start all servers and return when they are ready; does nothing if they run.

        Raises:
            ConfigurationError: Java or Maven is missing, or a server exited during its start.
            BrokerNotReady: a server was not ready in time.
        """
        try:
            if self._metadata_store is None:
                self._create()
            return self.restart()
        except BaseException:
            self.stop()
            raise

    def restart(self) -> Self:
        """Start dead servers with their old data and ports, and return when all are ready.

        Raises:
            BrokerNotReady, ConfigurationError: as ``start``.
        """
        for servers in ([self.metadata_store], self.bookies, self.brokers):
            for server in servers:
                server.launch()
            for server in servers:
                server.await_ready()
        return self

    def stop(self) -> None:
        """Stop all servers and delete temporary folders. May be called twice."""
        if self._metadata_store is None:
            return
        with ExitStack() as stack:
            for node in self.nodes:  # the last one first
                stack.callback(node.close)
                if self._data_dir is not None:  # temporary data needs no orderly shutdown
                    stack.callback(_stop_in_order, node)
        self._metadata_store, self.brokers, self.bookies = None, [], []

    @property
    def service_url(self) -> str:
        """``pulsar://host:port,host:port``: all brokers."""
        addresses = [one.service_url.removeprefix("pulsar://") for one in self._started()]
        return "pulsar://" + ",".join(addresses)

    @property
    def admin_url(self) -> str:
        """``http://host:port,host:port`` of the admin REST API: all brokers."""
        return _admin_url(self._started())

    def is_running(self) -> bool:
        """Whether all servers are alive."""
        return self._metadata_store is not None and all(node.is_running() for node in self.nodes)

    def owner(self, topic: str, *, timeout_s: float = _ADMIN_TIMEOUT_S) -> BrokerNode:
        """Return the broker that serves ``topic`` (an exact name); a broker loads it if needed.

        Raises:
            EosError: the lookup failed.
        """
        path = topic.replace("://", "/")
        found = self._transport(timeout_s).ask_json("GET", f"/lookup/v2/topic/{path}")
        for broker in self._started():
            if broker.service_url == found["brokerUrl"]:
                return broker
        raise BrokerNotReady(
            f"{topic} is served by {found['brokerUrl']}, which does not belong to this cluster."
        )

    def bundle(self, topic: str) -> str:
        """Return the namespace bundle of ``topic``, for example ``0x40000000_0x80000000``.

        Raises:
            EosError: the lookup failed.
        """
        path = topic.replace("://", "/")
        answer = self._transport(_ADMIN_TIMEOUT_S).ask("GET", f"/lookup/v2/topic/{path}/bundle")
        return answer.body.decode().strip().strip('"')

    def admin(self, method: str, path: str, body: object = None) -> Any:
        """Call the admin API once; see ``PulsarStandalone.admin``.

        Raises:
            Unauthorized, TopicNotFound, BrokerNotReady: the broker refused.
            EosError: there was no answer.
        """
        return self._transport(_ADMIN_TIMEOUT_S).ask_json(method, f"/admin{path}", body)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _started(self) -> list[BrokerNode]:
        if not self.brokers:
            raise BrokerNotReady("The cluster is not started.", hint="Call start() first.")
        return self.brokers

    def _transport(self, timeout_s: float) -> Transport:
        """Connect to the brokers that can answer, or to all if none can."""
        brokers = self._started()
        # A paused broker accepts connections, and does not answer.
        awake = [one for one in brokers if one.is_running() and not one.is_paused] or brokers
        return Transport(_admin_url(awake), Auth(), timeout_s=timeout_s)

    def _create(self) -> None:
        machine = Machine(need_java(), self._version, self._ready_timeout_s)
        taken: set[int] = set()

        def port() -> int:
            taken.add(number := settings.free_port(taken))
            return number

        metadata_port = port()
        self._metadata_store = metadata_store_node(
            machine, metadata_port, self._folder("metadata-store")
        )
        brokers, bookies = self._counts
        for number in range(bookies):
            folder = self._folder(f"bookie-{number}")
            self.bookies.append(bookie_node(machine, number, port(), metadata_port, folder))
        for number in range(brokers):
            name = f"broker-{number}"
            values = settings.cluster_broker(
                self._config | self._ports_of(number, port),
                bookies=bookies,
                metadata_port=metadata_port,
            )
            self.brokers.append(BrokerNode(name, machine, values, self._folder(name)))
        self._metadata_store.start()
        _set_up_metadata(machine, metadata_port, self.service_url, self.brokers[0].admin_url)

    def _ports_of(self, number: int, free: Callable[[], int]) -> dict[str, str]:

        names = "brokerServicePort", "webServicePort"
        return {
            name: str(first + number if first else free())
            for name, first in zip(names, self._first_ports, strict=True)
        }

    def _folder(self, name: str) -> Path | None:
        return None if self._data_dir is None else self._data_dir / name


def _set_up_metadata(
    machine: Machine, metadata_port: int, service_url: str, admin_url: str
) -> None:
    """Create the cluster, its first tenants and its coordinators; existing ones stay."""
    store = settings.metadata_url(metadata_port)
    args = ["--cluster", settings.CLUSTER]
    args += ["--metadata-store", store, "--configuration-metadata-store", store]
    args += ["--web-service-url", admin_url, "--broker-service-url", service_url]
    args += ["--initial-num-transaction-coordinators", str(COORDINATORS)]
    jvm = Jvm(machine.java, machine.version, None, ("-Xms64m", "-Xmx256m"), "metadata-setup")
    try:
        jvm.run(_SETUP, args, {})
        deadline = time.monotonic() + machine.ready_timeout_s
        while (code := jvm.exit_code()) is None:
            if time.monotonic() > deadline:
                raise BrokerNotReady("The cluster's metadata could not be set up in time.")
            time.sleep(_POLL_S)
        if code:
            error = ConfigurationError(f"The setup of the cluster's metadata exited with {code}.")
            error.add_note(f"Its last relevant lines:\n{relevant_tail(jvm.log())}")
            raise error
    finally:
        jvm.close()


def _stop_in_order(node: ClusterNode) -> None:
    with contextlib.suppress(BrokerNotReady):  # the supervisor is gone, and the node with it
        node.stop()


def _admin_url(brokers: list[BrokerNode]) -> str:
    return "http://" + ",".join(one.admin_url.removeprefix("http://") for one in brokers)
