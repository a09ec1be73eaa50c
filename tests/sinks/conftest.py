"""Sinks for one test: with its name, log folder and broker, closed at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from eos import PulsarSink
from eos.commit_log import CommitLog
from eos.protocol import LogRecord, State
from eos.testing import PulsarStandalone
from tests.recovery.conftest import recovery  # noqa: F401 - a fixture
from tests.sinks.source import Source
from tests.support.postgres import postgres_server, shop  # noqa: F401 - fixtures
from tests.support.spark_releases import HAS_DATA_SOURCES

# All that they test, or read topics by, is `format("pulsar")`, which 3.5 can't have.
collect_ignore_glob = (
    [] if HAS_DATA_SOURCES else ["test_datasource_*.py", "test_arrow_columns.py", "test_copies.py"]
)

MakeSink = Callable[..., PulsarSink]

# Provider, checkpoint format, changelog checkpointing. The HDFS-backed one knows format 1 only.
STORES = {
    "hdfs-1": ("HDFSBacked", 1, False),
    "rocksdb-1": ("RocksDB", 1, False),
    "rocksdb-1-changelog": ("RocksDB", 1, True),
    "rocksdb-2": ("RocksDB", 2, False),
    "rocksdb-2-changelog": ("RocksDB", 2, True),
}


def store_settings(name: str) -> dict[str, str]:
    """The session's settings for one of ``STORES``."""
    provider, number, changelog = STORES[name]
    prefix = "spark.sql.streaming.stateStore"
    package = "org.apache.spark.sql.execution.streaming.state"
    return {
        f"{prefix}.providerClass": f"{package}.{provider}StateStoreProvider",
        f"{prefix}.checkpointFormatVersion": str(number),
        f"{prefix}.rocksdb.changelogCheckpointing.enabled": str(changelog).lower(),
    }


@pytest.fixture
def make_sink(pulsar_standalone: PulsarStandalone, tmp_path, name: str) -> Iterator[MakeSink]:
    """Makes sinks of one id on one topic; further options as for ``PulsarSink``."""
    sinks: list[PulsarSink] = []

    def make(**options: Any) -> PulsarSink:
        defaults = {
            "sink_id": name,
            "service_url": pulsar_standalone.service_url,
            "topic": name,
            "commit_log": str(tmp_path / "log"),
            "create_topics": True,
        }
        sinks.append(PulsarSink(**{**defaults, **options}))
        return sinks[-1]

    yield make
    for sink in sinks:
        sink.close()


@pytest.fixture
def log(tmp_path, name: str) -> Callable[[], list[LogRecord]]:
    """Reads the sink's commit log afresh."""
    return lambda: CommitLog.open_read_only(tmp_path / "log", name).records()


@pytest.fixture
def committed(tmp_path, log) -> Callable[[], int]:
    """Counts the sink's committed epochs; there may be no log yet."""

    def committed() -> int:
        if not list(tmp_path.glob("log/*/_delta_log/*.json")):
            return 0
        return sum(record.state is State.COMMITTED for record in log())

    return committed


@pytest.fixture
def writer_options(pulsar_standalone: PulsarStandalone, tmp_path, name: str) -> dict[str, str]:
    """The options of ``format("pulsar")`` for writing to this test's topic."""
    return {
        "serviceUrl": pulsar_standalone.service_url,
        "topic": name,
        "sinkId": name,
        "commitLog": str(tmp_path / "log"),
        "createTopics": "true",
    }


@pytest.fixture
def source(spark, tmp_path) -> Source:
    """A file stream, each of whose files is an epoch."""
    return Source(spark, tmp_path)


@pytest.fixture
def spark_conf(spark) -> Iterator[Callable[[str, str], None]]:
    """Sets an option of the session, for one test."""
    before: dict[str, str | None] = {}

    def set_option(key: str, value: str) -> None:
        before.setdefault(key, spark.conf.get(key, None))
        spark.conf.set(key, value)

    yield set_option
    for key, value in before.items():
        if value is None:
            spark.conf.unset(key)
        else:
            spark.conf.set(key, value)


@pytest.fixture
def stores(spark_conf) -> Callable[[str], None]:
    """Sets which state stores new queries have."""

    def choose(name: str) -> None:
        for setting, value in store_settings(name).items():
            spark_conf(setting, value)

    return choose
