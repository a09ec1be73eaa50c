"""Peers in the JVM: Pulsar's Java client, and StreamNative's Spark connector, pulsar-spark."""

from __future__ import annotations

import contextlib
import hashlib
import multiprocessing
import os
import shutil
import subprocess
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeAlias, TypeVar

from pyspark.sql import DataFrame
from pyspark.sql.readwriter import DataFrameReader
from pyspark.sql.streaming.readwriter import DataStreamReader, DataStreamWriter

from bench.environment import CORES, HEAP
from bench.spark_writers import RowShape, arrow_rows
from eos.client import EntryProducer, PulsarClient
from eos.errors import ConfigurationError
from eos.ids import TopicName, TxnId
from eos.testing import jvm, maven
from eos.wire import commands
from eos.wire.batch import EncodedBatch, check_rows, encode_batches
from eos.wire.frames import encode_send

_PROGRAM: Final = Path(__file__).parent / "java" / "TransactionClient.java"


class JavaClient:
    """The Java client. A context manager, which starts and stops it.

    Each call writes rows in one transaction.
    """

    def __init__(self, service_url: str) -> None:
        java = jvm.find_java()
        if java is None:
            raise RuntimeError("No Java of version 17 or newer was found")
        jars = str(maven.pulsar_jars(maven.pulsar_version())[0].parent / "*")
        self._command = [java, *HEAP, "-cp", jars, str(_PROGRAM), service_url]

    def rows_per_s(self, shape: RowShape, topic: str, count: int) -> float:
        """Write ``count`` values to ``topic`` in one transaction."""
        if shape.partitions == 1:
            topic += "-partition-0"  # without a router in the client
        return self._rate(topic, count, str(shape.value_bytes))

    def records_per_s(self, schema: str, topic: str, count: int) -> float:
        """Write ``count`` records of ``bench.sending`` to a topic of one partition."""
        return self._rate(f"{topic}-partition-0", count, schema)

    def _rate(self, topic: str, count: int, kind: str) -> float:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{topic} {count} {kind}\n")
        self._process.stdin.flush()
        return count / float(self._await("took"))

    def _await(self, word: str) -> str:
        """Return the rest of the line that begins with ``word``; other lines are log output."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(word):
                return line.removeprefix(word).strip()
            if line.startswith("failed"):
                raise RuntimeError(f"The Java client failed: {line.strip()}")
        self._errors.seek(0)
        raise RuntimeError(
            f"The Java client ended with {self._process.wait()}: {self._errors.read()[-1000:]}"
        )

    def __enter__(self) -> Self:
        self._errors = tempfile.TemporaryFile("w+")
        # One JVM that stays: a new one would measure its compiler.
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        try:
            self._await("ready")
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def _end(self) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.communicate(timeout=20)  # it ends with its input
        self._process.kill()
        self._process.wait()
        self._errors.close()


# --- pulsar-spark: at-least-once, in the JVM ---------------------------------------------------

# Environment variable: where to clone from, for example a folder, if GitHub is unreachable.
SOURCES_VARIABLE: Final = "EOS_PULSAR_SPARK_SOURCES"
_SOURCES: Final = "https://github.com/streamnative/pulsar-spark"
_COMMIT: Final = "59066fc68d73ddfd3bbfe5aec638543d5ea9b0da"
# The version of Pulsar's Java client in its pom.
_CLIENT: Final = "4.0.5"
_PATCH: Final = Path(__file__).with_name("pulsar-spark-4.2.patch")
_CLONED_WITHIN_S: Final = 120.0


def built_jars(tell: Callable[[str], None]) -> list[Path]:
    """Return the jars of pulsar-spark and its dependencies, for ``spark.jars``.

    Empty if it cannot be built; ``tell`` gets the reason.
    """
    # Its sources do not compile against Spark 4.2. The patch follows Spark's renames and leaves the
    # connector's work as it is.
    key = hashlib.sha256(_PATCH.read_bytes() + _COMMIT.encode()).hexdigest()[:12]
    jar = maven.cache_dir() / f"pulsar-spark-{key}.jar"
    try:
        client = maven.resolve(
            [f"org.apache.pulsar:pulsar-client-all:{_CLIENT}"], f"pulsar-client-all-{_CLIENT}"
        )
        with maven.locked(jar.with_suffix(".lock")):
            if not jar.exists():
                tell("building pulsar-spark (once)")
                with tempfile.TemporaryDirectory(prefix="eos-pulsar-spark-") as folder:
                    _build(Path(folder), client, jar)
    except (ConfigurationError, OSError, subprocess.SubprocessError) as error:
        tell(f"pulsar-spark is left out: {_last_line(error)}")
        return []
    return [jar, *maven.without_sparks(client)]


def _build(folder: Path, client: Sequence[Path], jar: Path) -> None:
    java = jvm.find_java()
    if java is None:
        raise ConfigurationError("No Java of version 17 or newer was found.")
    sources, classes = folder / "sources", folder / "classes"
    url = os.environ.get(SOURCES_VARIABLE, _SOURCES)
    _run(
        ["git", "clone", "--quiet", "--no-checkout", url, str(sources)], timeout_s=_CLONED_WITHIN_S
    )
    _run(["git", "-C", str(sources), "checkout", "--quiet", _COMMIT])
    _run(["git", "-C", str(sources), "apply", str(_PATCH)])
    classes.mkdir()
    spark = [str(one) for one in maven.spark_jars()]
    class_path = os.pathsep.join([*spark, *map(str, client)])
    scala = sorted(map(str, (sources / "src/main/scala").rglob("*.scala")))
    compiler = [java, "-Xss8m", "-cp", os.pathsep.join(spark), "scala.tools.nsc.Main", "-nowarn"]
    _run([*compiler, "-d", str(classes), "-cp", class_path, *scala])
    shutil.copytree(sources / "src/main/resources", classes, dirs_exist_ok=True)
    staged = jar.with_suffix(".part")
    with zipfile.ZipFile(staged, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(classes.rglob("*")):
            archive.write(file, file.relative_to(classes))
    # Only a complete jar gets the name: an interrupted build is repeated.
    staged.replace(jar)


def _run(command: list[str], timeout_s: float | None = None) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=timeout_s)


def _last_line(error: Exception) -> str:
    said = getattr(error, "stderr", None) or str(error)
    return str(said).strip().splitlines()[-1]


# Its short name, ``pulsar``, is also that of eos.
SparkReader = TypeVar("SparkReader", DataFrameReader, DataStreamReader)
_FORMAT: Final = "org.apache.spark.sql.pulsar.PulsarProvider"
# By default it is off, and a task fails if the broker is slower than the task
# (MemoryBufferIsFullError, seen with 195,312 rows of 1,024 bytes).
_BLOCK: Final = "pulsar.producer.blockIfQueueFull"


def write_by_pulsar_spark(df: DataFrame, service_url: str, topic: str) -> None:
    """Write the column ``value`` as bytes, with the connector's other defaults."""
    write_avro_by_pulsar_spark(_values(df), service_url, topic)


def write_avro_by_pulsar_spark(df: DataFrame, service_url: str, topic: str) -> None:
    """Write all columns, as a record of the Avro schema that the connector makes of them; a single
    column is written as it is."""
    writer = df.write.format(_FORMAT).option("service.url", service_url)
    writer.option("topic", topic).option(_BLOCK, "true").mode("append").save()


def read_by_pulsar_spark(reader: SparkReader, service_url: str, topic: str) -> SparkReader:
    """Return the reader, set to the connector, from the first message on."""
    options = {"service.url": service_url, "topic": topic, "startingOffsets": "earliest"}
    return reader.format(_FORMAT).options(**options)


def stream_by_pulsar_spark(df: DataFrame, service_url: str, topic: str) -> DataStreamWriter:
    """Return a writer of a stream's column ``value``, by the connector's own sink."""
    writer = _values(df).writeStream.format(_FORMAT).option("service.url", service_url)
    return writer.option("topic", topic).option(_BLOCK, "true")


def _values(df: DataFrame) -> DataFrame:
    return df.selectExpr("CAST(value AS BINARY) AS value")


# --- processes with rows ready in Arrow, or with ready-made frames ------------------------------

WriterKind = Literal["arrow", "raw"]
Pipe: TypeAlias = "Connection[Any, Any]"

_READY_WITHIN_S: Final = 120.0
_ENDS_WITHIN_S: Final = 20.0
_IN_FLIGHT_BYTES: Final = 32 << 20
_TTL_S: Final = 300.0


@dataclass(frozen=True)
class WriterWork:
    """The work of one process."""

    kind: WriterKind
    topic: str
    txn: TxnId
    shape: RowShape
    start: int
    count: int


class WriterProcesses:
    """One process for each core, started by ``start_writers``."""

    def __init__(self, client: PulsarClient, pipes: list[Pipe]) -> None:
        self._client = client
        self._pipes = pipes

    def rows_per_s(self, kind: WriterKind, shape: RowShape, topic: str, count: int) -> float:
        """Write ``count`` rows to the first partition of ``topic``, in one transaction."""
        exact = str(TopicName.parse(topic).partition(0))
        txn = self._client.transaction(timeout_s=_TTL_S)
        txn.register([exact])
        share = count // CORES
        for number, pipe in enumerate(self._pipes):
            pipe.send(WriterWork(kind, exact, txn.id, shape, number * share, share))
        self._await("ready")
        # Timed from here, where all processes are ready, until the transaction is committed.
        began = time.perf_counter()
        for pipe in self._pipes:
            pipe.send("go")
        self._await("done")
        txn.commit()
        return share * CORES / (time.perf_counter() - began)

    def _await(self, word: str) -> None:
        for pipe in self._pipes:
            if not pipe.poll(_READY_WITHIN_S):
                raise RuntimeError(f"A writer process is not {word}")
            pipe.recv()  # EOFError if it has died; its error is on stderr


@contextmanager
def start_writers(service_url: str) -> Iterator[WriterProcesses]:
    """Start processes that stay, with their connections, like Spark's Python workers."""
    # The first second of a new process is slow.
    context = multiprocessing.get_context("spawn")
    with ExitStack() as stack:
        client = stack.enter_context(PulsarClient(service_url))
        pipes = []
        for _ in range(CORES):
            pipe, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs, service_url), daemon=True)
            with theirs:
                process.start()
            stack.callback(_end, process, pipe)
            pipes.append(pipe)
        yield WriterProcesses(client, pipes)


def _end(process: BaseProcess, pipe: Pipe) -> None:
    pipe.close()  # it ends with its orders
    try:
        process.join(_ENDS_WITHIN_S)
    finally:
        process.kill()
        process.join()


def _serve(orders: Pipe, service_url: str) -> None:
    with (
        contextlib.suppress(EOFError),  # no more orders
        PulsarClient(service_url, max_pending_bytes=_IN_FLIGHT_BYTES) as client,
    ):
        while True:
            _do(client, orders.recv(), orders)


def _do(client: PulsarClient, work: WriterWork, orders: Pipe) -> None:
    rows = arrow_rows(work.shape, work.start, work.count)
    txn = client.join(work.txn)
    txn.register([work.topic])
    producer = client.entry_producer(work.topic)
    # "arrow" is the sink's path, with all its checks. For "raw" the frames are built before: the
    # broker does all of its work, the client only loops over entries. That is the ceiling.
    if work.kind == "arrow":
        _get_ready(orders)
        check_rows(rows, producer.max_batch_bytes)
        for batch in encode_batches(rows):
            producer.send_batch(batch, txn=txn)
    else:
        sender = _RawSender(producer, work.txn)
        frames = sender.frames(list(encode_batches(rows)))
        _get_ready(orders)
        sender.push(frames)
    producer.close()
    orders.send("done")


def _get_ready(orders: Pipe) -> None:
    orders.send("ready")
    orders.recv()


class _RawSender:
    """Sends prepared frames, and counts receipts to limit the bytes in flight."""

    def __init__(self, producer: EntryProducer, txn: TxnId) -> None:
        self._txn = txn
        self._producer = producer
        self._connection = producer._connection
        self._connection.listeners.add_producer(producer._id, self)
        self._room = threading.Semaphore(_IN_FLIGHT_BYTES // (1 << 20))
        self._failure: BaseException | None = None

    def frames(self, batches: list[EncodedBatch]) -> list[tuple[bytes, memoryview]]:
        """Return headers, with their checksums, and payloads."""
        txn = self._txn
        frames, sequence_id = [], 0
        for batch in batches:
            send = commands.Send(
                producer_id=self._producer._id,
                sequence_id=sequence_id,
                num_messages=batch.num_messages,
                txnid_most=txn.most,
                txnid_least=txn.least,
            )
            metadata = commands.MessageMetadata(
                producer_name=self._producer.name,
                sequence_id=sequence_id,
                publish_time=time.time_ns() // 1_000_000,
                num_messages_in_batch=batch.num_messages,
                txnid_most=txn.most,
                txnid_least=txn.least,
            )
            frames.append((encode_send(send, metadata, batch.payload), batch.payload))
            sequence_id += batch.num_messages
        return frames

    def push(self, frames: list[tuple[bytes, memoryview]]) -> None:
        for frame in frames:
            self._room.acquire()
            self._connection._write(frame)
        # All room is free when all receipts have come.
        for _ in range(_IN_FLIGHT_BYTES // (1 << 20)):
            self._room.acquire()
        if self._failure is not None:
            raise self._failure

    def on_send_receipt(self, _: object) -> None:
        self._room.release()

    def on_send_error(self, error: commands.SendError) -> None:
        """Fail the run."""
        self.on_closed(RuntimeError(error.message))  # its figure is worthless

    def on_closed(self, reason: BaseException) -> None:
        """Fail the run: the connection is closed."""
        self._failure = reason
        self._room.release(10**6)  # also wakes a waiting ``push``
