"""The broker's settings: broker.conf for a small machine, its logging, and free ports."""

from __future__ import annotations

import random
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from eos.errors import ConfigurationError

HOST: Final = "127.0.0.1"

# Below the range that systems give to outgoing connections: a client that keeps reconnecting to
# a dead broker's port in that range may one day be given this very port, connect to itself, and
# keep the broker from coming back.
_PORTS: Final = range(15_000, 30_000)

# The broker logs all of its settings at start. Their names say which are secrets, and a token looks
# like one wherever it stands. (Braces would end log4j2's %replace.)
_SECRETS: Final = (
    r"(&quot;[^&quot;]*(?:[Tt]oken|[Ss]ecret|[Pp]assw|[Cc]redential|AuthenticationParameters"
    r"|basicAuthConf)"
    r"[^&quot;]*&quot; : )&quot;[^&quot;]*&quot;"
    r"|eyJ[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*"
)

_LOG4J2: Final = """\
<?xml version="1.0" encoding="UTF-8"?>
<Configuration status="ERROR" shutdownHook="disable">
  <Appenders>
    <File name="file" fileName="{file}">
      <PatternLayout pattern="%d{{ISO8601}} [%t] %-5level %logger{{36}} - {message}%n"/>
    </File>
  </Appenders>
  <Loggers>
    <Root level="INFO"><AppenderRef ref="file"/></Root>
  </Loggers>
</Configuration>
"""

_MAX_MESSAGE_SIZE: Final = 5 << 20
_HEADERS: Final = 10 << 10

BASE: Final[Mapping[str, str]] = {
    "clusterName": "standalone",
    "systemTopicEnabled": "true",
    "topicLevelPoliciesEnabled": "true",
    "loadBalancerEnabled": "false",
    "webSocketServiceEnabled": "false",
    "brokerShutdownTimeoutMs": "2000",
    # One bookie, so one copy.
    "managedLedgerDefaultEnsembleSize": "1",
    "managedLedgerDefaultWriteQuorum": "1",
    "managedLedgerDefaultAckQuorum": "1",
    # Few threads and small caches: the broker shares the machine with Spark and the tests.
    "numIOThreads": "2",
    "numOrderedExecutorThreads": "2",
    "numExecutorThreadPoolSize": "2",
    "numCacheExecutorThreadPoolSize": "2",
    "numHttpServerThreads": "8",
    "numTransactionReplayThreadPoolSize": "2",
    "managedLedgerNumSchedulerThreads": "2",
    "bookkeeperClientNumWorkerThreads": "2",
    "bookkeeperClientNumIoThreads": "2",
    "managedLedgerCacheSizeMB": "128",
    # The bookie reads the same file. Unless ephemeral ports are allowed, it ignores its port.
    "allowEphemeralPorts": "true",
    "allowLoopback": "true",
    "listeningInterface": "lo0" if sys.platform == "darwin" else "lo",
    # What nobody has subscribed to stays: else a topic is deleted a minute after its last producer.
    "brokerDeleteInactiveTopicsEnabled": "false",
    "ledgerStorageClass": "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage",
    "dbStorage_writeCacheMaxSizeMb": "64",
    "dbStorage_readAheadCacheMaxSizeMb": "32",
    "dbStorage_rocksDB_blockCacheSize": "16777216",
    "serverNumIOThreads": "2",
    "numAddWorkerThreads": "1",
    "numReadWorkerThreads": "1",
    "numLongPollWorkerThreads": "1",
    "numHighPriorityWorkerThreads": "1",
    "journalPreAllocSizeMB": "4",
    "journalMaxGroupWaitMSec": "1",
    # What was acknowledged is on the disk: a test that kills the broker may rely on it.
    "journalWriteData": "true",
    "journalSyncData": "true",
    # A nearly full disk of a development machine must not make the bookie read-only.
    "diskUsageThreshold": "0.99",
    "diskUsageWarnThreshold": "0.99",
}


def complete(config: Mapping[str, str], *, transactions: bool, token: str | None) -> dict[str, str]:
    """All settings: ours, then the user's over them, with a port for each listener.

    A port of 0 (also ``brokerServicePortTls``, ``webServicePortTls``) means: pick a free one.

    Raises:
        ConfigurationError: a port is not a number, or no free one was found.
    """
    settings = {
        **BASE,
        "transactionCoordinatorEnabled": "true" if transactions else "false",
        "advertisedAddress": HOST,
        "bindAddress": HOST,
        "brokerServicePort": "0",
        "webServicePort": "0",
    }
    if token is not None:
        settings["brokerClientAuthenticationPlugin"] = (
            "org.apache.pulsar.client.impl.auth.AuthenticationToken"
        )
        settings["brokerClientAuthenticationParameters"] = f"token:{token}"
    settings.update(config)
    settings.setdefault("nettyMaxFrameSizeBytes", _bookie_frame(settings))
    taken: set[int] = set()
    for name in (
        "brokerServicePort",
        "webServicePort",
        "brokerServicePortTls",
        "webServicePortTls",
    ):
        value = settings.get(name, "")
        if value and not value.isdigit():
            raise ConfigurationError(
                f"{name}={value!r}: expected a port number, or 0 for a free one."
            )
        if value == "0":
            settings[name] = str(free_port(taken))
        if settings.get(name):
            taken.add(int(settings[name]))
    return settings


def _bookie_frame(settings: Mapping[str, str]) -> str:
    """What the bookie takes: all that the broker takes, with its headers.

    Both are 5 MiB by default. Then the bookie hangs up on an entry of that size, and with it on
    all other topics' entries; whoever sends it tries again, and nobody gets on (measured).
    """
    largest = settings.get("maxMessageSize", "")
    return str((int(largest) if largest.isdecimal() else _MAX_MESSAGE_SIZE) + _HEADERS)


def broker_conf(settings: Mapping[str, str]) -> str:
    """``settings`` in the form of broker.conf.

    Raises:
        ConfigurationError: a name or a value would not stay on its line.
    """
    for name, value in settings.items():
        if "\n" in f"{name}{value}" or "=" in name:
            raise ConfigurationError(f"{name!r}: a setting is one line, name=value.")
    return "".join(f"{name}={value}\n" for name, value in settings.items())


def log4j2(file: Path) -> str:
    """The configuration of the broker's log: into ``file``, without secrets."""
    return _LOG4J2.format(file=file, message=f"%replace{{%msg}}{{{_SECRETS}}}{{$1***}}")


def free_port(taken: set[int]) -> int:
    """A port that nobody listens on and that is not in ``taken``.

    Raises:
        ConfigurationError: none of many tries was free.
    """
    for port in random.sample(_PORTS, 200):
        if port in taken:
            continue
        with socket.socket() as probe:
            # Like the broker's own sockets: a port whose old connections linger is usable.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
        return port
    raise ConfigurationError(f"No free port between {_PORTS.start} and {_PORTS.stop}.")
