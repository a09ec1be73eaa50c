"""One server of a cluster: start, kill, stop and pause it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from eos.errors import BrokerNotReady, ConfigurationError
from eos.testing import _settings as settings
from eos.testing._readiness import PortProbe, Probe, await_ready, relevant_tail
from eos.testing.jvm import Jvm

_STOP_GRACE_S: Final = 30.0
_STARTED: Final = "ComponentStarter - Started component"
_GAVE_UP: Final = "Couldn't register bookie"
_REGISTRATION: Final = "its registration as a bookie"


class _Readiness(Protocol):
    def wait(self, deadline_s: float, check_alive: Callable[[], None]) -> None: ...


@dataclass(frozen=True)
class Machine:
    """The ``java`` and Pulsar version of a cluster's servers, and the timeout of their start."""

    java: str
    version: str
    ready_timeout_s: float


@dataclass(frozen=True)
class Program:
    """The Java program of a server."""

    role: str
    main: str  # its class
    readiness: _Readiness
    values: Callable[[Path], Mapping[str, str]]  # the settings for a data folder
    args: tuple[str, ...] = ()  # the path of its settings follows
    options: Sequence[str] = ()  # of the JVM


class ClusterNode:
    """A server process of a ``PulsarCluster``, which creates it.

    Attributes:
        name: ``broker-0``, ``bookie-1``, ``metadata-store``.
        is_paused: whether it was paused and not resumed.
    """

    def __init__(
        self, name: str, machine: Machine, program: Program, data_dir: Path | None
    ) -> None:
        self.name = name
        self._program = program
        self._ready_timeout_s = machine.ready_timeout_s
        self._jvm = Jvm(machine.java, machine.version, data_dir, program.options, program.role)
        self._has_run = False
        self.is_paused = False

    @property
    def pid(self) -> int | None:
        """Its process id; None if it does not run."""
        return self._jvm.pid if self.is_running() else None

    @property
    def data_dir(self) -> Path:
        """The folder of its data and its log."""
        return self._jvm.data_dir

    def is_running(self) -> bool:
        """Whether its process is alive, also while it is paused."""
        return self._has_run and self._jvm.exit_code() is None

    def start(self) -> None:
        """Start it with its old data and ports, unless it runs; return when it is ready.

        Raises:
            BrokerNotReady: it was not ready in time.
            ConfigurationError: it exited during the start.
        """
        self.launch()
        self.await_ready()

    def launch(self) -> None:
        """Start it without waiting."""
        if self.is_running():
            return
        program = self._program
        self._has_run, self.is_paused = True, False
        self._jvm.run(
            program.main,
            (*program.args, str(self._jvm.conf)),
            program.values(self._jvm.data_dir),
        )

    def await_ready(self) -> None:
        """Return when it is ready.

        Raises:
            BrokerNotReady, ConfigurationError: as ``start``.
        """
        try:
            self._await(time.monotonic() + self._ready_timeout_s)
        except (ConfigurationError, BrokerNotReady) as error:
            error.add_note(f"Last relevant lines of {self.name}:\n{relevant_tail(self.log())}")
            raise

    def _await(self, deadline_s: float) -> None:
        self._program.readiness.wait(deadline_s, self._check_alive)

    def _check_alive(self) -> None:
        code = self._jvm.exit_code()
        if code is not None:
            raise ConfigurationError(f"{self.name} exited with code {code} during its start.")

    def kill(self) -> None:
        """Kill it with SIGKILL, like a crash; return when it is gone."""
        self._jvm.kill()

    def stop(self) -> None:
        """Stop it with SIGTERM, in order; return when it is gone."""
        self.resume()  # a paused process does not handle signals
        self._jvm.stop(_STOP_GRACE_S)

    def pause(self) -> None:
        """Pause it with SIGSTOP: connections stay open without answers. No effect on a dead one."""
        self._signal(signal.SIGSTOP)
        self.is_paused = True

    def resume(self) -> None:
        """Resume it with SIGCONT."""
        self._signal(signal.SIGCONT)
        self.is_paused = False

    def log(self) -> str:
        """Its log since its last start."""
        return self._jvm.log()

    def close(self) -> None:
        """Kill it and delete a temporary folder."""
        self._jvm.close()

    def _signal(self, number: signal.Signals) -> None:
        pid = self.pid
        if pid is not None:
            os.kill(pid, number)


class BrokerNode(ClusterNode):
    """A broker of a ``PulsarCluster``."""

    def __init__(
        self,
        name: str,
        machine: Machine,
        values: Mapping[str, str],
        data_dir: Path | None,
    ) -> None:
        self._service_port = int(values["brokerServicePort"])
        self._admin_port = int(values["webServicePort"])
        probe = Probe(settings.HOST, self._admin_port, self._service_port, None, transactions=True)
        program = Program(
            "broker",
            "org.apache.pulsar.PulsarBrokerStarter",
            probe,
            lambda _: values,
            ("--broker-conf",),
            ("-Xms128m", "-Xmx512m", "-XX:MaxDirectMemorySize=512m"),
        )
        super().__init__(name, machine, program, data_dir)

    @property
    def service_url(self) -> str:
        """``pulsar://host:port`` of this broker alone."""
        return f"pulsar://{settings.HOST}:{self._service_port}"

    @property
    def admin_url(self) -> str:
        """``http://host:port`` of this broker's admin REST API."""
        return f"http://{settings.HOST}:{self._admin_port}"


class BookieNode(ClusterNode):
    """A bookie of a ``PulsarCluster``."""

    # The registration of a killed process lasts as long as its session. A bookie of 4.2.4 takes it
    # over. A bookie of 4.0.7 gives up: its process stays, with its port open, and stores nothing
    # (measured). It is restarted then, as an operator would do.

    def _await(self, deadline_s: float) -> None:
        super()._await(deadline_s)
        await_ready(self._missing, _REGISTRATION, deadline_s, self._check_alive)

    def _missing(self) -> str | None:
        log = self.log()
        # A bookie that gave up its place lives on without it: two copies can't be stored.
        if _GAVE_UP in log:
            self.kill()
            self.launch()
        elif _STARTED in log:
            return None
        return _REGISTRATION


def metadata_store_node(machine: Machine, port: int, data_dir: Path | None) -> ClusterNode:
    """Return the ZooKeeper of a cluster."""
    program = Program(
        "metadata-store",
        "org.apache.zookeeper.server.ZooKeeperServerMain",
        PortProbe(settings.HOST, port),
        lambda folder: settings.metadata_store(port, folder),
        options=("-Xms64m", "-Xmx256m"),
    )
    return ClusterNode("metadata-store", machine, program, data_dir)


def bookie_node(
    machine: Machine, number: int, port: int, metadata_port: int, data_dir: Path | None
) -> BookieNode:
    """Return a bookie of a cluster."""
    program = Program(
        "bookie",
        "org.apache.bookkeeper.server.Main",
        PortProbe(settings.HOST, port),
        lambda folder: settings.bookie(number, port, metadata_port, folder),
        ("--conf",),
        ("-Xms64m", "-Xmx256m", "-XX:MaxDirectMemorySize=512m"),
    )
    return BookieNode(f"bookie-{number}", machine, program, data_dir)
