"""The stage of every measurement: one broker, one Spark session, topics that come and go."""

from __future__ import annotations

import math
import os
import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psutil
from pyspark.sql import SparkSession

from bench import page_cache
from eos.commit_log import CommitLog
from eos.protocol import State
from eos.standalone import PulsarStandalone, maven

CORES: Final = 2
_LOG: Final = Path("build/bench/broker.log")
_MEMORY_BYTES: Final = 12 << 30
"""Three heaps (2, 2 and 4 GB), the broker's buffers, and rows that are ready."""
_COUNTED_WITHIN_S: Final = 30.0
_SETTLED_WITHIN_S: Final = 2.0
_LOOKS_FOR_S: Final = 0.2
_QUIET: Final = 0.2
"""Of one core; a broker without clients uses a few hundredths."""
HEAP: Final = ("-Xms2g", "-Xmx2g", "-XX:+AlwaysPreTouch")
"""As a server's JVM has it: all of it from the start. One that gives memory back and takes it anew
measures the kernel."""
# Compiler, collector and caches as on a machine that is a broker: what a test starts with, for a
# quick start and little memory, would measure the tests.
BROKER_JVM: Final = (
    *HEAP,
    # The caches below lie outside of the heap. With 1 GiB for them and for what is under way a
    # broker that reads from its bookie gets none any more, and pauses for 15 s each time.
    "-XX:MaxDirectMemorySize=3g",
    "-XX:TieredStopAtLevel=4",
    "-XX:-UseSerialGC",
    "-XX:+UseG1GC",
)
BROKER_CONFIG: Final = {
    "dbStorage_writeCacheMaxSizeMb": "512",
    "managedLedgerCacheSizeMB": "512",
    # Not after a second, as by default: what is measured from memory stays in memory.
    "managedLedgerCacheEvictionTimeThresholdMillis": "600000",
    "maxPendingPublishRequestsPerConnection": "1000",
}


@dataclass(frozen=True)
class Setting:
    """What a measurement works with; ``folder`` is temporary.

    Attributes:
        has_pulsar_spark: Spark has that connector as well.
    """

    broker: PulsarStandalone
    spark: SparkSession
    folder: Path
    has_pulsar_spark: bool

    def commit_log(self) -> str:
        """The root for all sinks' logs."""
        return str(self.folder / "commit-log")

    @contextmanager
    def topic(self, partitions: int) -> Iterator[str]:
        """A fresh topic, its full name; deleted at the end, for its data fills the disk."""
        topic = f"persistent://public/default/bench-{uuid.uuid4().hex[:12]}"
        self.broker.admin("PUT", f"{_path(topic)}/partitions", partitions)
        try:
            yield topic
        finally:
            self.broker.admin("DELETE", f"{_path(topic)}/partitions?force=true")

    def committed(self, sink_id: str) -> int:
        """How many rows the log of a sink says are committed, in the epochs that it keeps."""
        records = CommitLog.open_read_only(self.commit_log(), sink_id).records()
        return sum(one.records or 0 for one in records if one.state is State.COMMITTED)

    def stats(self, topic: str) -> dict[str, Any]:
        """What the broker has counted in all partitions of a topic, transactions' markers too."""
        path = f"{_path(topic)}/partitioned-stats?perPartition=false"
        counted: dict[str, Any] = self.broker.admin("GET", path)
        return counted

    def settle(self) -> None:
        """Until the broker is done with what it was left with: two seconds at most."""
        assert self.broker.pid is not None
        process = psutil.Process(self.broker.pid)
        deadline = time.monotonic() + _SETTLED_WITHIN_S
        used_s = math.inf
        while used_s > _QUIET * _LOOKS_FOR_S and time.monotonic() < deadline:
            before = process.cpu_times()
            time.sleep(_LOOKS_FOR_S)
            after = process.cpu_times()
            used_s = after.user + after.system - before.user - before.system

    def await_count(self, topic: str, wanted: int) -> None:
        """Until the broker has counted at least so many messages: a figure is worth nothing before.

        Raises:
            RuntimeError: it does not, for half a minute.
        """
        deadline = time.monotonic() + _COUNTED_WITHIN_S
        while (found := self.stats(topic)["msgInCounter"]) < wanted:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{found} messages of {wanted} reached {topic}")
            time.sleep(0.1)


def _path(topic: str) -> str:
    return f"/v2/{topic.replace('://', '/')}"


@contextmanager
def setting(pulsar_spark: Sequence[Path] = ()) -> Iterator[Setting]:
    """Broker and Spark, both on this machine; gone at the end, whatever happens.

    Args:
        pulsar_spark: that connector's jars.

    Raises:
        RuntimeError: there is too little memory for them and their peers.
    """
    available = psutil.virtual_memory().available
    if available < _MEMORY_BYTES:
        raise RuntimeError(
            f"broker, Spark and their peers need {_MEMORY_BYTES >> 30} GiB of memory; "
            f"{available / 2**30:.1f} GiB are free"
        )
    folder = Path(tempfile.mkdtemp(prefix="eos-bench-"))
    try:
        with (
            page_cache.full(folder),
            PulsarStandalone(config=BROKER_CONFIG, jvm_options=BROKER_JVM) as broker,
        ):
            spark = _session(folder, pulsar_spark)
            try:
                yield Setting(broker, spark, folder, bool(pulsar_spark))
            except Exception:
                _LOG.parent.mkdir(parents=True, exist_ok=True)
                _LOG.write_text(broker.log())  # it goes with the broker, and may say why
                raise
            finally:
                spark.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _session(folder: Path, more_jars: Sequence[Path]) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    root = str(Path(__file__).parents[1])
    os.environ["PYTHONPATH"] = os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])
    session = (
        SparkSession.builder.master(f"local[{CORES}]")
        .appName("eos-bench")
        .config("spark.driver.memory", "4g")
        .config("spark.driver.extraJavaOptions", "-Xms4g -XX:+AlwaysPreTouch")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", str(CORES))
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.local.dir", str(folder / "spark"))
        # The peer of the epoch's latency: a Delta table as the sink.
        .config("spark.jars", ",".join(map(str, [*maven.delta_jars(), *more_jars])))
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config(
            "spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog"
        )
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    return session


def timed_s(action: Callable[[], object]) -> float:
    """How long ``action()`` takes."""
    began = time.perf_counter()
    action()
    return time.perf_counter() - began
