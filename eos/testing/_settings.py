"""The servers' settings: broker.conf for a small machine, logging, and free ports."""

from __future__ import annotations

import html
import json
import random
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from eos.errors import ConfigurationError
from eos.testing import maven

HOST: Final = "127.0.0.1"
CLUSTER: Final = "eos"
PORTS: Final = (
    "brokerServicePort", "webServicePort", "brokerServicePortTls", "webServicePortTls"
)  # fmt: skip

# Below the range of outgoing connections: a client that keeps reconnecting to a dead broker's port
# in that range may get this very port, connect to itself, and block the broker's restart.
_PORTS: Final = range(15_000, 30_000)

# The broker logs all settings at its start. Secrets are found by the settings' names, tokens by
# their form. (Braces would end log4j2's %replace.)
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


def _copies(count: int) -> dict[str, str]:
    """Settings for ``count`` copies of each entry."""
    return {
        "managedLedgerDefaultEnsembleSize": str(count),
        "managedLedgerDefaultWriteQuorum": str(count),
        "managedLedgerDefaultAckQuorum": str(count),
    }


_BROKER: Final[Mapping[str, str]] = {
    "clusterName": "standalone",
    "systemTopicEnabled": "true",
    "topicLevelPoliciesEnabled": "true",
    "webSocketServiceEnabled": "false",
    "brokerShutdownTimeoutMs": "2000",
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
    # By default a bookie that failed a few requests is excluded for half an hour. Without another
    # bookie nothing can be written during that time (measured on 4.0.7).
    "bookkeeperClientHealthCheckEnabled": "false",
    "managedLedgerCacheSizeMB": "128",
    # Topics without subscriptions stay. By default a topic is deleted a minute after its last
    # producer has gone, and its closed ledgers at the next retention check, every two minutes.
    "brokerDeleteInactiveTopicsEnabled": "false",
    "retentionCheckIntervalInSeconds": "86400",
}
_BOOKIE: Final[Mapping[str, str]] = {
    # Unless ephemeral ports are allowed, the bookie of a standalone broker ignores its port.
    "allowEphemeralPorts": "true",
    "allowLoopback": "true",
    "listeningInterface": "lo0" if sys.platform == "darwin" else "lo",
    "ledgerStorageClass": "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage",
    "dbStorage_writeCacheMaxSizeMb": "64",
    "dbStorage_readAheadCacheMaxSizeMb": "32",
    # By default a read of one entry reads 100 entries of the ledger, of any size: with a backlog in
    # many topics nearly all is read again in each epoch (measured: 14 ms for each topic).
    "dbStorage_readAheadCacheBatchBytesSize": "524288",
    "dbStorage_rocksDB_blockCacheSize": "16777216",
    "serverNumIOThreads": "2",
    "numAddWorkerThreads": "1",
    "numReadWorkerThreads": "1",
    "numLongPollWorkerThreads": "1",
    "numHighPriorityWorkerThreads": "1",
    "journalPreAllocSizeMB": "4",
    "journalMaxGroupWaitMSec": "1",
    # Acknowledged data is on the disk: tests that kill a process rely on it.
    "journalWriteData": "true",
    "journalSyncData": "true",
    # A nearly full disk of a development machine must not make the bookie read-only.
    "diskUsageThreshold": "0.99",
    "diskUsageWarnThreshold": "0.99",
}
_STANDALONE: Final[Mapping[str, str]] = {
    **_BROKER,
    **_BOOKIE,
    **_copies(1),
    "loadBalancerEnabled": "false",
}
# After this time without a heartbeat the metadata store regards a server as dead, and its topics
# move. Pulsar's default is 30 s; most of a test would be waiting.
_SESSION_MS: Final = 10_000


def metadata_store(port: int, folder: Path) -> dict[str, str]:
    """Settings of a ZooKeeper."""
    return {
        "dataDir": str(folder / "zookeeper"),
        "clientPort": str(port),
        "clientPortAddress": HOST,
        "tickTime": "1000",
        "maxClientCnxns": "0",
        "admin.enableServer": "false",
        "preAllocSize": "1024",  # KiB; by default each snapshot begins a file of 64 MiB
    }


def metadata_url(port: int) -> str:
    """The URL of the ZooKeeper at ``port`` for brokers."""
    return f"zk:{HOST}:{port}"


def bookie(number: int, port: int, metadata_port: int, folder: Path) -> dict[str, str]:
    """Settings of a bookie of a cluster."""
    return {
        **_BOOKIE,
        "bookieId": f"bookie-{number}",  # its port may change at a restart
        "bookiePort": str(port),
        "advertisedAddress": HOST,
        "metadataServiceUri": f"metadata-store:{metadata_url(metadata_port)}",
        "zkTimeout": str(_SESSION_MS),
        "journalDirectories": str(folder / "journal"),
        "ledgerDirectories": str(folder / "ledgers"),
        "nettyMaxFrameSizeBytes": _bookie_frame({}),
        "httpServerEnabled": "false",
        "autoRecoveryDaemonEnabled": "false",
    }


def cluster_broker(
    config: Mapping[str, str], *, bookies: int, metadata_port: int
) -> dict[str, str]:
    """Settings of a broker of a cluster: ``config`` over the defaults, with a port per listener.

    Raises:
        ConfigurationError: as ``complete``.
    """
    values = {
        **_BROKER,
        **_copies(min(bookies, 2)),
        "clusterName": CLUSTER,
        "loadBalancerEnabled": "true",
        # The loopback has no network card that reports its speed.
        "loadBalancerOverrideBrokerNicSpeedGbps": "10",
        "metadataStoreUrl": metadata_url(metadata_port),
        "configurationMetadataStoreUrl": metadata_url(metadata_port),
        "metadataStoreSessionTimeoutMillis": str(_SESSION_MS),
    }
    return _with_ports({**values, **_listeners(transactions=True), **config})


def complete(config: Mapping[str, str], *, transactions: bool, token: str | None) -> dict[str, str]:
    """All settings of a single broker: ``config`` over the defaults, with a port per listener.

    A port of 0 (also ``brokerServicePortTls``, ``webServicePortTls``) means a free one.

    Raises:
        ConfigurationError: a port is not a number, or is given twice, or no free one was found.
    """
    settings = {**_STANDALONE, **_listeners(transactions=transactions)}
    if token is not None:
        settings["brokerClientAuthenticationPlugin"] = (
            "org.apache.pulsar.client.impl.auth.AuthenticationToken"
        )
        settings["brokerClientAuthenticationParameters"] = f"token:{token}"
    settings.update(config)
    settings.setdefault("nettyMaxFrameSizeBytes", _bookie_frame(settings))
    return _with_ports(settings)


def _listeners(*, transactions: bool) -> dict[str, str]:
    return {
        "transactionCoordinatorEnabled": "true" if transactions else "false",
        "advertisedAddress": HOST,
        "bindAddress": HOST,
        "brokerServicePort": "0",
        "webServicePort": "0",
    }


def _with_ports(settings: dict[str, str]) -> dict[str, str]:
    """Replace each port of 0 by a free one."""
    taken: set[int] = set()
    for name in PORTS:
        value = settings.get(name, "")
        if value and not value.isdigit():
            raise ConfigurationError(
                f"{name}={value!r}: expected a port number, or 0 for a free one."
            )
        if value == "0":
            settings[name] = str(free_port(taken))
        if port := settings.get(name):
            if int(port) in taken:
                raise ConfigurationError(f"{name}={port}: another listener has this port.")
            taken.add(int(port))
    return settings


def _bookie_frame(settings: Mapping[str, str]) -> str:
    """The bookie's maximum frame: the broker's largest message plus headers."""
    # Both limits are 5 MiB by default. Then the bookie closes the connection on an entry of that
    # size, and all other topics' entries on it fail too; the broker retries, and nothing succeeds
    # (measured).
    largest = settings.get("maxMessageSize", "")
    return str((int(largest) if largest.isdecimal() else _MAX_MESSAGE_SIZE) + _HEADERS)


def properties(settings: Mapping[str, str]) -> str:
    """Format ``settings`` as a properties file.

    Raises:
        ConfigurationError: a name contains ``=``, or a name or value contains a line break.
    """
    for name, value in settings.items():
        if "\n" in f"{name}{value}" or "=" in name:
            raise ConfigurationError(f"{name!r}: a setting must be one line, name=value.")
    # Java reads Latin-1, and the escapes of JSON's texts.
    return "".join(f"{name}={json.dumps(value)[1:-1]}\n" for name, value in settings.items())


def log4j2(file: Path) -> str:
    """The configuration of a log that goes to ``file``, without secrets."""
    return _LOG4J2.format(
        file=html.escape(str(file)), message=f"%replace{{%msg}}{{{_SECRETS}}}{{$1***}}"
    )


def free_port(taken: set[int]) -> int:
    """Return a free port that is not in ``taken``.

    Raises:
        ConfigurationError: none of 200 tries was free.
    """
    for port in random.sample(_PORTS, 200):
        if port not in taken and is_free(port):
            return port
    raise ConfigurationError(f"No free port between {_PORTS.start} and {_PORTS.stop}.")


def is_free(port: int) -> bool:
    """Whether a broker could listen on a port."""
    with socket.socket() as probe:
        # As the broker's sockets do: a port with old connections in TIME_WAIT is usable.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def rolling(entries_per_ledger: int) -> dict[str, str]:
    """Return the settings for ledgers of so many entries."""
    return {
        "managedLedgerMaxEntriesPerLedger": str(entries_per_ledger),
        "managedLedgerMinLedgerRolloverTimeMinutes": "0",
    }


def offloading_to_s3(url: str, bucket: str, folder: Path) -> dict[str, str]:
    """Return the settings to offload ledgers, by the jcloud offloader, to a bucket at ``url``.

    Its keys are in the broker's environment, ``ACCESS_KEY_ID`` and ``ACCESS_KEY_SECRET``. The
    broker can't run in Docker: the offloader, from Maven, is extracted into ``folder``.

    Raises:
        ConfigurationError: Maven can't resolve it.
    """
    extracted = folder / "extracted"
    extracted.mkdir(parents=True, exist_ok=True)
    return {
        "offloadersDirectory": str(maven.offloader("tiered-storage-jcloud").parent),
        "narExtractionDirectory": str(extracted),
        "managedLedgerOffloadDriver": "S3",
        "managedLedgerOffloadBucket": bucket,
        "managedLedgerOffloadServiceEndpoint": url,
        "managedLedgerOffloadRegion": "us-east-1",
        # The least that the offloader allows.
        "managedLedgerOffloadMaxBlockSizeInBytes": str(5 << 20),
    }
