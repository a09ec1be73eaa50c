"""The rows that all alternatives write, and the ways to write them from Spark."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import pulsar
import pyarrow as pa
import pyarrow.parquet
from pulsar.schema import BytesSchema
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from bench.environment import CORES, Environment
from eos import PulsarSink
from eos.sources import PulsarDataSource
from eos.wire.batch import Rows
from examples.flights.flight_files import read_flights

_FLIGHT_COPIES: Final = 2
# A value is text that ends with the row's number.
_DIGITS: Final = 9


@dataclass(frozen=True)
class RowShape:
    """The shape of rows and of their topic."""

    value_bytes: int = 100
    columns: str = "value"  # or ``keyed`` (with key and event time), ``properties`` (with two)
    partitions: int = 1

    @property
    def name(self) -> str:
        """Its name in tables."""
        return f"{self.value_bytes} B, {self.columns}, {self.partitions} partitions"

    def count(self, rows: int) -> int:
        """Return how many rows have as many bytes of values as ``rows`` of the default size."""
        return rows * RowShape.value_bytes // self.value_bytes


def frame(spark: SparkSession, shape: RowShape, count: int, *, tasks: int = CORES) -> DataFrame:
    """Return ``count`` rows, in a Spark partition for each task."""
    # Spark generates them while it reads them, at a cost that ``spark_empty`` shows. Reading them
    # from a cache would measure the cache.
    text = _text(shape.value_bytes)[:-_DIGITS].decode()
    value = f"concat('{text}', lpad(string(id), {_DIGITS}, '0')) AS value"
    chosen = [value]
    if shape.columns == "keyed":
        chosen += ["concat('user-', id % 50000) AS key", "1700000000000 + id AS event_time"]
    elif shape.columns == "properties":
        chosen.append("map('source', 'bench', 'row', string(id)) AS properties")
    return spark.range(0, count, 1, tasks).selectExpr(*chosen)


def arrow_rows(shape: RowShape, start: int, count: int) -> Rows:
    """Return the values ``start`` to ``start + count`` of ``frame`` in Arrow's layout."""
    values = np.tile(np.frombuffer(_text(shape.value_bytes), np.uint8), (count, 1))
    numbers = np.char.zfill(np.arange(start, start + count).astype(f"U{_DIGITS}"), _DIGITS)
    digits = numbers.astype(f"S{_DIGITS}").view(np.uint8)
    values[:, -_DIGITS:] = digits.reshape(count, _DIGITS)
    offsets = np.arange(count + 1, dtype=np.int32) * shape.value_bytes
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(values))]
    return Rows(value=pa.Array.from_buffers(pa.binary(), count, buffers))


def _text(size: int) -> bytes:
    return (b"the quick brown fox jumps " * (size // 26 + 1))[:size]


WriteStream = Callable[[DataFrame], DataStreamWriter]  # of the files' lines, column ``value``


class FileStream:
    """A query over files of the same ``text``, one file for each epoch.

    Each ``run`` starts it again on its checkpoint.
    """

    def __init__(self, env: Environment, text: str, write: WriteStream) -> None:
        self.epochs = 0
        self._env = env
        self._write = write
        self._folder = env.folder / f"stream-{uuid.uuid4().hex[:8]}"
        self._input = self._folder / "input"
        self._input.mkdir(parents=True)
        self._text = text

    def run(self, epochs: int) -> list[float]:
        """Return the milliseconds of ``epochs`` epochs, after a first one."""
        epochs += 1
        for number in range(self.epochs, self.epochs + epochs):
            drop(self._input, f"{number:06}", self._text)
        self.epochs += epochs
        lines = (
            self._env.spark.readStream.schema("value string")
            .option("maxFilesPerTrigger", 1)
            .text(str(self._input))
            .repartition(CORES)
        )
        query = (
            self._write(lines)
            .option("checkpointLocation", str(self._folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        took_ms = epochs_ms(query)
        if len(took_ms) != epochs:
            raise RuntimeError(f"Spark reported {len(took_ms)} of {epochs} epochs")
        return took_ms[1:]  # the first one plans


def epochs_ms(query: StreamingQuery) -> list[float]:
    """Return the milliseconds of each epoch with rows, as Spark times it: source, offsets, write
    and commit."""
    return [
        progress["durationMs"]["triggerExecution"]
        for progress in query.recentProgress
        if progress["numInputRows"]
    ]


def drop(folder: Path, name: str, text: str) -> None:
    """Write a file that becomes visible as a whole."""
    # Hidden until it is whole: Spark skips names that begin with a dot (``HadoopFSUtils``).
    hidden = folder / f".{name}"
    hidden.write_text(text)
    hidden.rename(folder / name)


def flight_values(env: Environment) -> DataFrame:
    """Return the flights of 2013 as JSON, twice, made by Spark from Parquet files."""
    folder = env.folder / "flights"
    folder.mkdir()
    flights = read_flights()
    share = -(-len(flights) // CORES)
    for core in range(CORES):
        part = flights.slice(core * share, share)
        for copy in range(_FLIGHT_COPIES):
            pyarrow.parquet.write_table(part, folder / f"{core}-{copy}.parquet")
    return env.spark.read.parquet(str(folder)).selectExpr("to_json(struct(*)) AS value")


class EosSource(PulsarDataSource):
    """The source, by a name that is its own.

    pulsar-spark's is ``pulsar``, too, and Spark prefers the JVM's.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format``."""
        return "eos"


class EosSink:
    """A ``PulsarSink`` that is kept for a whole measurement, as a query would keep it."""

    def __init__(self, env: Environment, topic: str | None, **options: Any) -> None:
        if topic is not None:
            options = {"sink_id": topic.rsplit("/", 1)[1], **options}
        self.sink = PulsarSink(
            service_url=env.broker.service_url,
            topic=topic,
            commit_log=env.commit_log(),
            # Like its peers: the values are so similar that LZ4 would hide all other costs.
            **{"compression": "none", **options},
        )
        self._epochs = 0

    def write(self, df: DataFrame) -> None:
        """Write one epoch, exactly once."""
        self._epochs += 1
        self.sink.write(df, epoch=f"epoch-{self._epochs}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.sink.close()


def write_by_pulsar_client(df: DataFrame, service_url: str, topic: str) -> None:
    """Write in the usual way: ``foreachPartition``, a client and a producer in each task, large
    batches. At-least-once, without coordination between the tasks."""
    columns = df.columns

    def message(row: Row) -> dict[str, Any]:
        options = {"content": row.value.encode()}
        if "key" in columns:
            options |= {"partition_key": row.key, "event_timestamp": row.event_time}
        if "properties" in columns:
            options["properties"] = row.properties
        return options

    send_by_pulsar_client(df, service_url, topic, message)


def send_by_pulsar_client(
    df: DataFrame,
    service_url: str,
    topic: str,
    message: Callable[[Row], dict[str, Any]],
    schema: Callable[[], Any] = BytesSchema,
) -> None:
    """Write by a client and a producer in each task; a failed send fails the job.

    Args:
        message: returns the arguments of the producer's ``send`` for a row.
        schema: creates the producer's schema.
    """

    def send(rows: Iterable[Row]) -> None:
        client = pulsar.Client(service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        producer = client.create_producer(
            topic,
            schema=schema(),  # in the task: it cannot be pickled
            batching_enabled=True,
            batching_max_messages=10_000,
            batching_max_allowed_size_in_bytes=1 << 20,
            batching_max_publish_delay_ms=10,
            block_if_queue_full=True,
            max_pending_messages=100_000,
            max_pending_messages_across_partitions=200_000,
        )
        failed: list[object] = []

        def sent(result: object, _: object) -> None:
            if result != pulsar.Result.Ok:
                failed.append(result)

        try:
            for row in rows:
                producer.send_async(callback=sent, **message(row))
            producer.flush()
        finally:
            client.close()
        if failed:
            raise RuntimeError(f"{len(failed)} sends failed: {failed[0]}")

    df.foreachPartition(send)


def pass_through_python(df: DataFrame) -> None:
    """Pass all rows to Python, in Arrow, and drop them: Spark's own cost of a ``mapInArrow``."""

    def count(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"rows": [sum(batch.num_rows for batch in batches)]})

    df.mapInArrow(count, "rows long").collect()
