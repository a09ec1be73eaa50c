"""The environment of a measurement, and how measurements are taken."""

from __future__ import annotations

import contextlib
import math
import os
import platform
import shutil
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
import psutil
from pyspark.sql import SparkSession

from eos.commit_log import CommitLog
from eos.protocol import State
from eos.testing import PulsarStandalone, maven

CORES: Final = 2
WARM_UP: Final = 2  # rounds that do not count
BROKER: Final = "broker"
_LOG: Final = Path("build/bench/broker.log")
# Three heaps (2, 2 and 4 GB), the broker's buffers, and rows in memory.
_MEMORY_BYTES: Final = 12 << 30
_COUNTED_WITHIN_S: Final = 30.0
_SETTLED_WITHIN_S: Final = 2.0
_SETTLE_POLL_S: Final = 0.2
# Of one core; a broker without clients uses a few hundredths.
_QUIET: Final = 0.2
_FILLED_WITHIN_S: Final = 60.0
_READ_BYTES: Final = 1 << 20
# The whole heap from the start, as for a server. A JVM that returns memory and takes it again
# measures the kernel.
HEAP: Final = ("-Xms2g", "-Xmx2g", "-XX:+AlwaysPreTouch")
# Compiler, collector and caches as on a production broker. The settings of the tests, for a quick
# start and little memory, would measure the tests.
BROKER_JVM: Final = (
    *HEAP,
    # The caches below are outside of the heap. With 1 GiB for them and for entries in flight, a
    # broker that reads from its bookie runs out of it, and pauses for 15 s each time.
    "-XX:MaxDirectMemorySize=3g",
    "-XX:TieredStopAtLevel=4",
    "-XX:-UseSerialGC",
    "-XX:+UseG1GC",
)
BROKER_CONFIG: Final = {
    "dbStorage_writeCacheMaxSizeMb": "512",
    "managedLedgerCacheSizeMB": "512",
    # Not after a second, the default: reads that are measured from memory must stay in memory.
    "managedLedgerCacheEvictionTimeThresholdMillis": "600000",
    "maxPendingPublishRequestsPerConnection": "1000",
}


Measured = TypeVar("Measured")


@dataclass(frozen=True)
class Environment:
    """The broker and Spark session of a measurement."""

    broker: PulsarStandalone
    spark: SparkSession
    folder: Path
    has_pulsar_spark: bool  # its jars are on Spark's class path

    def commit_log(self) -> str:
        """Return the root of all sinks' logs."""
        return str(self.folder / "commit-log")

    @contextmanager
    def topic(self, partitions: int) -> Iterator[str]:
        """Yield the full name of a new topic, which is deleted at the end."""
        topic = f"persistent://public/default/bench-{uuid.uuid4().hex[:12]}"
        self.broker.admin("PUT", f"{_path(topic)}/partitions", partitions)
        try:
            yield topic
        finally:
            # The data of all rounds would fill the disk.
            self.broker.admin("DELETE", f"{_path(topic)}/partitions?force=true")

    def committed(self, sink_id: str) -> int:
        """Return the committed rows of a sink, in the epochs that its log still has."""
        records = CommitLog.open_read_only(self.commit_log(), sink_id).records()
        return sum(one.records or 0 for one in records if one.state is State.COMMITTED)

    def stats(self, topic: str) -> dict[str, Any]:
        """Return the broker's counters of all partitions; markers of transactions are counted."""
        path = f"{_path(topic)}/partitioned-stats?perPartition=false"
        counted: dict[str, Any] = self.broker.admin("GET", path)
        return counted

    def settle(self) -> None:
        """Wait until the broker has finished earlier work; two seconds at most."""
        assert self.broker.pid is not None
        process = psutil.Process(self.broker.pid)
        deadline = time.monotonic() + _SETTLED_WITHIN_S
        used_s = math.inf
        while used_s > _QUIET * _SETTLE_POLL_S and time.monotonic() < deadline:
            before = process.cpu_times()
            time.sleep(_SETTLE_POLL_S)
            after = process.cpu_times()
            used_s = after.user + after.system - before.user - before.system

    def await_count(self, topic: str, wanted: int) -> None:
        """Wait until the broker has counted ``wanted`` messages.

        Raises:
            RuntimeError: it has not, after half a minute.
        """
        # The rate of a run whose messages did not all arrive is worthless.
        deadline = time.monotonic() + _COUNTED_WITHIN_S
        while (found := self.stats(topic)["msgInCounter"]) < wanted:
            if time.monotonic() > deadline:
                raise RuntimeError(f"Only {found} of {wanted} messages reached {topic}")
            time.sleep(0.1)

    def processor_s(self) -> dict[str, float]:
        """Return the seconds of processor time until now, the kernel's included, by process.

        ``broker`` (with its bookie and metadata), ``Spark's JVM``, ``Python workers``, ``Python
        driver``.
        """
        driver = psutil.Process()
        found = {BROKER: 0.0, "Spark's JVM": 0.0, "Python workers": 0.0, "Python driver": 0.0}
        for process in (driver, *driver.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                used = process.cpu_times()
                if process.pid == self.broker.pid:
                    who = BROKER
                elif process == driver:
                    who = "Python driver"
                else:
                    who = "Spark's JVM" if "java" in process.name() else "Python workers"
                found[who] += used.user + used.system
        return found


def _path(topic: str) -> str:
    return f"/v2/{topic.replace('://', '/')}"


@contextmanager
def environment(
    pulsar_spark: Sequence[Path] = (), *, config: Mapping[str, str] | None = None
) -> Iterator[Environment]:
    """Start a broker and Spark on this machine, and stop them at the end.

    Args:
        pulsar_spark: that connector's jars.
        config: further settings of the broker.

    Raises:
        RuntimeError: there is too little memory for them and their peers.
    """
    available = psutil.virtual_memory().available
    if available < _MEMORY_BYTES:
        raise RuntimeError(
            f"Broker, Spark and their peers need {_MEMORY_BYTES >> 30} GiB of memory; "
            f"{available / 2**30:.1f} GiB are free"
        )
    folder = Path(tempfile.mkdtemp(prefix="eos-bench-"))
    try:
        with (
            full_page_cache(folder),
            PulsarStandalone(
                config={**BROKER_CONFIG, **(config or {})}, jvm_options=BROKER_JVM
            ) as broker,
        ):
            spark = _session(folder, pulsar_spark)
            try:
                yield Environment(broker, spark, folder, bool(pulsar_spark))
            except Exception:
                _LOG.parent.mkdir(parents=True, exist_ok=True)
                _LOG.write_text(broker.log())  # deleted with the broker, and may explain the error
                raise
            finally:
                spark.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _session(folder: Path, more_jars: Sequence[Path]) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    # Spark's Python workers import modules of this folder.
    root = str(Path(__file__).parents[1])
    os.environ["PYTHONPATH"] = os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])
    session = (
        SparkSession.builder.master(f"local[{CORES}]")
        .appName("eos-bench")
        .config("spark.driver.memory", "4g")
        # As the broker's heap: memory that is returned and taken again would measure the kernel.
        .config("spark.driver.extraJavaOptions", "-Xms4g -XX:+AlwaysPreTouch")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", str(CORES))
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.local.dir", str(folder / "spark"))
        # A peer for the latency of epochs: a Delta table as the sink.
        .config("spark.jars", ",".join(map(str, [*maven.delta_jars(), *more_jars])))
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config(
            "spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog"
        )
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    return session


@contextmanager
def full_page_cache(folder: Path) -> Iterator[None]:
    """Fill the free memory with pages of a file without content, for a minute at most; on Linux."""
    # A broker that has run for a day works on a machine whose memory is in use. Measured on two
    # cores of a virtual machine that returns free memory to its host (free page reporting): the
    # first touch of a GB costs the kernel 2.1 s, each later one 0.4 s. The broker writes to the
    # page cache, so the same rows cost it three times the processor time once it received unused
    # pages, after some 5 GB. The pages of a full cache are reused instead, at almost no cost, and
    # no process has less memory for it.
    # (A folder in memory, tmpfs, keeps no pages of such a file.)
    with tempfile.TemporaryFile(dir=folder) as file:
        if sys.platform == "linux":
            _read_empty(file.fileno(), psutil.virtual_memory().free)
        yield


def _read_empty(file: int, size: int) -> None:
    # Bytes that were never written: the file needs no disk space.
    readers = os.cpu_count() or 1
    share = -(-size // readers)
    os.truncate(file, share * readers)
    end = time.monotonic() + _FILLED_WITHIN_S
    is_over = threading.Event()

    def read(start: int) -> None:
        buffer = bytearray(_READ_BYTES)
        for offset in range(start, start + share, _READ_BYTES):
            if is_over.is_set() or time.monotonic() > end:
                return
            os.preadv(file, [buffer], offset)

    with ThreadPoolExecutor(readers) as pool:
        try:
            list(pool.map(read, range(0, share * readers, share)))
        finally:
            is_over.set()  # Ctrl-C does not wait for the rest


def machine() -> dict[str, Any]:
    """Return the machine and the versions that the figures depend on."""
    packages = ("pyspark", "pulsar-client", "pyarrow", "deltalake", "delta-spark")
    return {
        "cores": os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "system": platform.system(),
        "python": platform.python_version(),
        **{package: version(package) for package in packages},
        "broker_jvm": list(BROKER_JVM),
        "broker_config": dict(BROKER_CONFIG),
    }


# --- taking measurements -----------------------------------------------------------------------


def timed_s(action: Callable[[], object]) -> float:
    """Return the seconds that ``action()`` takes."""
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


@dataclass(frozen=True)
class Spread:
    """Median, 10th and 90th percentile, lowest and highest of ``count`` measurements."""

    median: float
    p10: float
    p90: float
    lowest: float
    highest: float
    count: int

    @classmethod
    def of(cls, measured: Sequence[float], digits: int = 1) -> Spread:
        """Return the spread of ``measured``, rounded."""
        median, p10, p90, lowest, highest = (
            round(percentile(measured, at), digits) for at in (0.5, 0.1, 0.9, 0.0, 1.0)
        )
        return cls(median, p10, p90, lowest, highest, len(measured))


def percentile(measured: Sequence[float], share: float) -> float:
    """Return the quantile at ``share``, interpolated between two measurements."""
    return float(np.quantile(measured, share))


def chosen(ways: Mapping[str, Measured], only: Collection[str]) -> dict[str, Measured]:
    """Return the ``ways`` that ``only`` names; all of them if it is empty."""
    return {name: way for name, way in ways.items() if not only or name in only}


def interleaved_rates(
    env: Environment,
    ways: Mapping[str, Callable[[], float]],
    rounds: int,
    tell: Callable[[str], None],
) -> dict[str, dict[str, float]]:
    """Return for each way its rows per second, as a spread. A way returns how many it processed."""
    rates = {name: partial(_rate_of, way) for name, way in ways.items()}
    found = interleaved(env, rates, rounds, tell, warm_up=WARM_UP)
    return {name: vars(Spread.of(rates, 0)) for name, rates in found.items()}


def interleaved_seconds(
    env: Environment,
    ways: Mapping[str, Callable[[], float]],
    rounds: int,
    tell: Callable[[str], None],
) -> dict[str, dict[str, float]]:
    """Return for each way its seconds, as a spread; without a warm-up."""
    found = interleaved(env, ways, rounds, tell, warm_up=0)
    return {name: vars(Spread.of(seconds, 2)) for name, seconds in found.items()}


def _rate_of(way: Callable[[], float]) -> float:
    began = time.perf_counter()
    rows = way()
    return rows / (time.perf_counter() - began)


def interleaved(
    env: Environment,
    ways: Mapping[str, Callable[[], float]],
    rounds: int,
    tell: Callable[[str], None],
    *,
    warm_up: int,
) -> dict[str, list[float]]:
    """Return for each way what it measured itself, round by round, after ``warm_up`` rounds."""
    order = np.random.default_rng(0)  # the same orders in every run
    found: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(-warm_up, rounds):
        tell("warm-up" if number < 0 else f"round {number + 1}")
        # In a new random order: other load of the machine affects all ways alike.
        for name in order.permutation(list(ways)):
            env.settle()
            measured = ways[name]()
            if number >= 0:
                found[name].append(measured)
    return found
