"""The harness's workloads: eos in any query shape, and a common at-least-once sink."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from eos.chaos._query_shapes import rows_of
from eos.chaos._records import java_hash, topics_of, whole_rows
from eos.chaos._spark_checkpoint import Checkpoint
from eos.chaos._user_code import log_line, with_user_code
from eos.chaos.job import DATABASE_TABLE, ICEBERG_TABLE, INPUT_SCHEMA, KEY_NAME
from eos.ids import TopicName

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from eos.chaos.job import Job

    class Writes(Protocol):
        """A sink, or an object that calls one."""

        def write(self, df: DataFrame, *, epoch: int) -> object:
            """Write one epoch."""

    from pyspark.sql import Row
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from eos import PulsarSink
    from eos.sinks.sink import Sink


_POLL_S: Final = 0.1


class Notebook:
    """A batch job in a notebook: one call of the sink for each input, in one process.

    Has the interface of a query: it can be awaited and stopped.
    """

    def __init__(self, spark: SparkSession, job: Job, sink: Writes) -> None:
        self._spark = spark
        self._job = job
        self._sink = sink
        self._stopped = threading.Event()

    def awaitTermination(self) -> None:  # noqa: N802 - Spark's name
        """Run cells until it is stopped.

        Raises:
            Exception: the error of a cell, unless it was interrupted.
        """
        while not self._stopped.is_set():
            try:
                self._run_cells()
            except (KeyboardInterrupt, UnboundLocalError) as error:
                # A Ctrl-C while PySpark opens a socket becomes an UnboundLocalError.
                if KeyboardInterrupt not in (type(error), type(error.__context__)):
                    raise
                # The next cell has the same key and the same sink. A second Ctrl-C may come.
                with contextlib.suppress(KeyboardInterrupt):
                    log_line("notebook", "interrupted")

    def stop(self) -> None:
        """Stop after the running cell."""
        self._stopped.set()

    def _run_cells(self) -> None:
        checkpoint = Checkpoint(self._job.checkpoint)
        while not self._stopped.is_set():
            number = checkpoint.inputs_done()
            path = Path(self._job.input_dir) / f"input-{number:06}.parquet"
            if path.exists():
                self._run_cell(number, path)
            else:
                self._stopped.wait(_POLL_S)

    def _run_cell(self, number: int, path: Path) -> None:
        # Like a query's Spark checkpoint, so that the harness can follow it.
        self._note("offsets", number, f'v1\n{{}}\n{{"logOffset":{number}}}\n')
        rows = self._spark.read.schema(INPUT_SCHEMA).parquet(str(path))
        df = rows.repartition(self._job.tasks, "slot").drop("slot")
        self._sink.write(df, epoch=number)  # skipped if the interrupt came after the commit
        self._note("commits", number, "v1\n{}\n")
        log_line("notebook", f"key {number}")

    def _note(self, folder: str, number: int, text: str) -> None:
        path = Path(self._job.checkpoint) / folder / str(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{number}.draft")
        draft.write_text(text)
        os.replace(draft, path)  # whole at once: the harness may read it at any moment


# The workload that supports all query shapes and variants of user code.
OWN: Final = "eos.chaos.workloads:stream"


def stream(spark: SparkSession, job: Job) -> StreamingQuery | Notebook:
    """Write each epoch in a transaction, for any query shape: by ``PulsarSink``, with any user code
    and optionally a table, or by ``format("pulsar")``."""
    sink = _ByFormat(job) if job.by_format else _sink(job)
    if job.shape == "notebook":
        return Notebook(spark, job, sink)
    log_line(job.shape, job.checkpoint)
    rows = rows_of(spark, job)
    if isinstance(sink, _ByFormat):
        writer = sink.stream(rows)
    else:
        writer = rows.writeStream.foreachBatch(with_user_code(job.user_code, spark, sink))
    return writer.option("checkpointLocation", job.checkpoint).start()


class _ByFormat:
    """Writes by ``format("pulsar")``, in a stream or a notebook."""

    def __init__(self, job: Job) -> None:
        options = {**_shared(job), **_to_pulsar(job), "topic": job.topic}
        self._options = {name: value for name, value in options.items() if value is not None}
        log_line("by-format", job.topic)

    def stream(self, rows: DataFrame) -> DataStreamWriter:
        """Return the writer of a query."""
        return rows.writeStream.format("pulsar").options(**self._options)

    def write(self, df: DataFrame, *, epoch: int) -> None:
        """Write one epoch by a batch call."""
        writer = df.write.format("pulsar").mode("append").options(**self._options)
        writer.option("epoch", epoch).save()


class _WholeRows:
    """Turns records into whole rows, and calls the sink with them."""

    def __init__(self, topic: str, sink: PulsarSink) -> None:
        self._topic = topic
        self._sink = sink

    def __call__(self, df: DataFrame, epoch: int) -> None:
        self._sink(whole_rows(df, epoch, self._topic), epoch)

    def write(self, df: DataFrame, *, epoch: int) -> object:
        """Write one epoch by a batch call."""
        return self._sink.write(whole_rows(df, epoch, self._topic), epoch=epoch)


def _sink(job: Job) -> Sink | _WholeRows:
    from eos import (
        DeltaSink,
        Encryption,
        IcebergSink,
        PostgresSink,
        PulsarSink,
        all_or_nothing,
    )

    shared, to_pulsar = _shared(job), _to_pulsar(job)
    if job.whole_rows:
        log_line("whole-rows", topics_of(job.topic))
        namespace = TopicName.parse(job.topic).namespace_name
        return _WholeRows(
            job.topic,
            PulsarSink(
                **shared,
                **to_pulsar,
                receipt_namespace=namespace,
                schema="avro",
                null_values="tombstone",
            ),
        )
    if job.keys:
        log_line("encrypted", job.topic)
        to_pulsar["encryption"] = Encryption(key_location=job.keys, encryption_keys=[KEY_NAME])
    topic = PulsarSink(**shared, **to_pulsar, topic=job.topic)
    others: list[Sink] = []
    # Upserts where there are three: of two, an append shows what is written twice.
    key: dict[str, Any] = {"merge_on": ["value"]} if job.table and job.database else {}
    if job.table:
        log_line("table", job.table)
        others.append(DeltaSink(**shared, table=job.table, **key))
    if job.database:
        log_line("database", DATABASE_TABLE)
        others.append(PostgresSink(**shared, conninfo=job.database, table=DATABASE_TABLE, **key))
    if job.iceberg:
        log_line("iceberg", ICEBERG_TABLE)
        others.append(IcebergSink(**shared, table=ICEBERG_TABLE, catalog=job.iceberg_catalog))
    return all_or_nothing(topic, *others) if others else topic


# Short timeouts: messages are lost on purpose.
def _shared(job: Job) -> dict[str, Any]:
    return {
        "sink_id": job.sink_id,
        "commit_log": job.commit_log,
        "on_new_cluster": job.on_new_cluster,
        "resolve_timeout_s": 30,
    }


def _to_pulsar(job: Job) -> dict[str, Any]:
    timeouts = {"request_timeout_s": 5, "transaction_ttl_s": 20}
    return {
        "service_url": job.service_url,
        "admin_url": job.admin_url or None,
        **({} if job.shape == "counted" else timeouts),  # a soak has the defaults, like users
    }


def _java_router(message: Any, partitions: int) -> int:
    # Like the Java client: pulsar-client uses another hash by default, and the checker expects
    # each key in its partition.
    return java_hash(message.partition_key()) % partitions


def naive(spark: SparkSession, job: Job) -> StreamingQuery:
    """``foreachPartition`` with ``pulsar-client``: at-least-once, half-written epochs visible."""
    service_url, topic = job.service_url, job.topic

    def send(rows: Iterable[Row]) -> None:
        import pulsar

        client = pulsar.Client(service_url)
        producer = client.create_producer(
            topic, block_if_queue_full=True, message_router=_java_router
        )
        for row in rows:
            producer.send_async(row.value.encode(), lambda *_: None, partition_key=row.key)
        producer.flush()  # all that this sink does for its rows: nothing undoes a failed task's
        client.close()

    def write(df: DataFrame, _: int) -> None:
        df.foreachPartition(send)

    writer = job.input(spark).writeStream.foreachBatch(write)
    return writer.option("checkpointLocation", job.checkpoint).start()
