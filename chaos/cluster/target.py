"""The target of faults: the broker or cluster, proxy, driver and topics of one run."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, Literal

import psutil

from eos.admin import AdminClient
from eos.chaos.cluster.companions import Archiver, KeyedCounter
from eos.chaos.cluster.driver_process import DriverLog, DriverProcess
from eos.chaos.cluster.object_store import ObjectStore
from eos.chaos.cluster.proxy import FaultProxy
from eos.chaos.cluster.supervisor import DriverSupervisor
from eos.chaos.job import Job
from eos.commit_log import CommitLog, has_log, list_sinks
from eos.errors import EosError
from eos.ids import TxnId
from eos.protocol import LogRecord, State
from eos.pulsar.part import pulsar_part
from eos.testing import BrokerNode, PostgresServer, PulsarCluster, PulsarStandalone
from eos.transport.auth import Auth

_POLL_S: Final = 0.05
_START_S: Final = 15.0
_ADMIN_TIMEOUT_S: Final = 60.0
_OWNER_TIMEOUT_S: Final = 3.0
_LOG_SHOWN: Final = 1_000_000
_ASSIGN: Final = "persistent://pulsar/system/transaction_coordinator_assign"

Pulsar = PulsarStandalone | PulsarCluster


class PulsarHolder:
    """One broker, or a cluster of several, for many runs; started for the first one."""

    def __init__(self, version: str | None = None) -> None:
        self.store: ObjectStore | None = None  # to which it offloads ledgers
        self._version = version
        self._running: Pulsar | None = None

    def get(
        self, brokers: int, config: Mapping[str, str] | None = None, *, is_tiered: bool = False
    ) -> Pulsar:
        """Return it, started if it does not run, or if it can't offload and ``is_tiered``."""
        if is_tiered and self.store is None:
            self.discard()
            self.store = ObjectStore().__enter__()
        if self._running is not None and not self._running.is_running():
            self.discard()
        if self._running is None:
            given = {**(config or {}), **(self.store.broker_config() if self.store else {})}
            kind = PulsarStandalone if brokers == 1 else partial(PulsarCluster, brokers)
            self._running = kind(config=given, pulsar_version=self._version).start()
        return self._running

    def discard(self) -> None:
        """Stop it; the next one is a new one."""
        running, self._running = self._running, None
        if running is not None:
            running.stop()

    def close(self) -> None:
        """Stop it, and tiered storage."""
        try:
            self.discard()
        finally:
            if self.store is not None:
                self.store.__exit__()


def revive(broker: Pulsar) -> str:
    """Restart a dead broker or cluster; return why that failed, in one line, or ""."""
    try:
        if not broker.is_running():
            broker.restart()
    except Exception as error:  # of any server
        notes = (line for note in getattr(error, "__notes__", ()) for line in note.splitlines())
        return " / ".join([f"{type(error).__name__}: {error}", *notes])
    return ""


def logs_of(broker: Pulsar) -> str:
    """The end of the log of each server, since its last start."""
    servers = broker.nodes if isinstance(broker, PulsarCluster) else [broker]
    return "\n".join(server.log()[-_LOG_SHOWN:] for server in servers)


def path_of(topic: str) -> str:
    """The path of a topic in the admin API."""
    return f"/v2/{topic.replace('://', '/')}"


@dataclass
class FaultTarget:
    """Everything that faults can break in one run."""

    broker: Pulsar
    proxy: FaultProxy
    supervisor: DriverSupervisor
    job: Job
    topics: list[str]  # the partitions of the job's topics
    # By time.time(): when the broker was ready after each death, and when a cluster was hit.
    broker_back_at: list[float] = field(default_factory=list)
    struck_at: list[float] = field(default_factory=list)
    store: ObjectStore | None = None  # tiered storage of the input topic
    archiver: Archiver | None = None  # of the input topic
    counter: KeyedCounter | None = None  # of the first of ``topics``
    database: PostgresServer | None = None  # an output of the job

    @property
    def admin(self) -> AdminClient:
        """Client for queries of the admin API; ``broker.admin`` is for faults."""
        return AdminClient(self.broker.admin_url, Auth(), timeout_s=_ADMIN_TIMEOUT_S)

    @property
    def has_log(self) -> bool:
        """Whether the job has a commit log, as with a sink of eos."""
        return Path(self.job.commit_log).exists()

    @property
    def sink_id(self) -> str:
        """The sink whose log is there; a job may use its own id instead of ``Job.sink_id``.

        Raises:
            CommitLogError: the logs can't be listed.
        """
        found = list_sinks(self.job.commit_log)
        return found[0] if len(found) == 1 else self.job.sink_id

    @property
    def cluster(self) -> PulsarCluster:
        """The cluster; only for faults that need one."""
        assert isinstance(self.broker, PulsarCluster)
        return self.broker

    def broker_of(self, topic: str) -> PulsarStandalone | BrokerNode:
        """The broker that serves ``topic``.

        Raises:
            EosError: the lookup fails.
        """
        if isinstance(self.broker, PulsarStandalone):
            return self.broker
        return self.broker.owner(topic)

    def await_new_owner(self, topic: str, old: BrokerNode, *, timeout_s: float = 60.0) -> str:
        """Wait until another broker serves ``topic``; return its name.

        Raises:
            TimeoutError: none does.
        """
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            with contextlib.suppress(EosError):  # the lookup still names the old one
                owner = self.cluster.owner(topic, timeout_s=_OWNER_TIMEOUT_S)
                if owner is not old:
                    return owner.name
            time.sleep(_POLL_S)
        raise TimeoutError(f"No broker takes over {topic} from {old.name}.")

    def coordinator_topic(self) -> str:
        """The topic whose broker has the coordinator of the newest transaction."""
        txn = self.newest_txn()
        return f"{_ASSIGN}-partition-{txn.most if txn else 0}"

    def strike(self) -> None:
        """Record that a part of the cluster is hit now, to measure the recovery time."""
        # A standalone broker must come back first: ``broker_back_at``.
        if isinstance(self.broker, PulsarCluster):
            self.struck_at.append(time.time())

    def heal_broker(self) -> None:
        """Restart dead servers; return when the broker or cluster is ready."""
        if not self.broker.is_running():
            self.broker.restart()
            self.broker_back_at.append(time.time())

    def await_processes(
        self, what: Literal["executors", "workers"], *, timeout_s: float = 60.0
    ) -> list[psutil.Process]:
        """Wait for executors or Python workers of the youngest driver.

        Raises:
            TimeoutError: no such process is found.
        """
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            driver = self.supervisor.current
            found = driver.executors() if what == "executors" else driver.workers()
            if found:
                return found
            time.sleep(_POLL_S)
        raise TimeoutError(f"the driver has no {what}")

    def await_claim(self, rival: DriverProcess, *, timeout_s: float = 180.0) -> str:
        """Wait for a new claim; return a text about it, "" without one."""
        before: int | None = None
        deadline = time.monotonic() + timeout_s
        while True:
            with contextlib.suppress(EosError):  # it can't be read now
                records = self.log_records()
                if records is None and before is None:
                    time.sleep(_START_S)  # the time that a driver needs to start
                    return "without a commit log"
                claims = sum(record.state is State.CLAIMED for record in records or [])
                before = claims if before is None else before
                if claims > before:
                    return f"which took claim {claims}"
            # A rival that ends before its claim was stopped by Spark's own log.
            if time.monotonic() > deadline or not rival.is_alive:
                return ""
            time.sleep(_POLL_S)

    def log_records(self) -> list[LogRecord] | None:
        """The records of the commit log; None for a workload without one.

        Raises:
            CommitLogError: the log is broken.
        """
        where = (self.job.commit_log, self.sink_id)
        return CommitLog.open_read_only(*where).records() if has_log(*where) else None

    def newest_txn(self) -> TxnId | None:
        """The last transaction in the commit log."""
        records = self.log_records() or []
        return next(filter(None, (pulsar_part(record).txn for record in reversed(records))), None)

    def committed(self) -> int:
        """The number of COMMITTED records in the log."""
        return sum(record.state is State.COMMITTED for record in self.log_records() or [])

    def receipt_topic(self) -> str:
        """The sink's receipt topic; "" before the first claim."""
        records = self.log_records() or []
        return pulsar_part(records[-1]).receipt_topic if records else ""

    def driver_log(self) -> DriverLog:
        """The drivers' new log lines from now on."""
        return DriverLog(self.supervisor.log_folder)

    def fresh_partition(self) -> str:
        """A partition that never had a message; "" without one."""
        # By entries ever added: one that was trimmed or aborted had a transaction, too.
        for topic in reversed(self.topics):
            stats = self.broker.admin("GET", f"{path_of(topic)}/internalStats")
            if stats["entriesAddedCounter"] == 0:
                return topic
        return ""

    def create_topics(self) -> None:
        """Create the job's topics, with all their partitions.

        Raises:
            EosError: the broker refuses.
        """
        counts = Counter(topic.rpartition("-partition-")[0] for topic in self.topics)
        for topic, partitions in counts.items():
            self.broker.admin("PUT", f"{path_of(topic)}/partitions", partitions)

    def recovery(self, *args: str, timeout_s: float = 120.0) -> subprocess.CompletedProcess[str]:
        """Run ``eos recovery`` with these arguments in a separate process, bypassing the proxy."""
        return subprocess.run(
            self._recovery_command(*args),
            env=self._recovery_env(),
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )

    def start_recovery(self, *args: str) -> subprocess.Popen[bytes]:
        """Start ``eos recovery`` without waiting for it."""
        devnull = subprocess.DEVNULL
        command, env = self._recovery_command(*args), self._recovery_env()
        return subprocess.Popen(command, env=env, stdout=devnull, stderr=devnull)

    def _recovery_env(self) -> dict[str, str]:
        # The log has no login.
        return {**os.environ, **(self.database.environment if self.database else {})}

    def _recovery_command(self, *args: str) -> list[str]:
        return [
            *(sys.executable, "-m", "eos", "recovery", *args),
            *("--commit-log", self.job.commit_log),
            *("--service-url", self.broker.service_url),
            *("--admin-url", self.broker.admin_url),
        ]
