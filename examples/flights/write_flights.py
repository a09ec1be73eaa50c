"""The driver program: a stream of flight events from Parquet files to a Pulsar topic, in two ways.

The demo runs it in a separate process and kills it. Its use of Spark is that of any job; the rest
reports its progress to the demo: events ``started``, ``begin`` and ``end`` of an epoch,
``finished``.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pulsar
import pyarrow.parquet
from pyspark.sql import DataFrame, Row
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from eos.chaos.cluster.spark_env import local_cluster
from examples._demo.subprocesses import Task, event_sender, follow_parent
from examples.flights.flight_files import FILES_PER_EPOCH
from examples.flights.flights_run import Way

WriteBatch = Callable[[DataFrame, int], None]

SINK_ID: Final = "flights"


@dataclass(frozen=True)
class FlightsTask(Task):
    """The settings of one run of the program.

    Attributes:
        way: write with ``pulsar-client`` or with ``PulsarSink``.
        dies_after: with ``pulsar-client``, kill this process after writing this epoch.
    """

    way: Way
    input_dir: str
    scratch_dir: str
    checkpoint: str
    service_url: str
    admin_url: str
    topic: str
    commit_log: str
    rows_per_step: int
    dies_after: int | None = None


def main(task: FlightsTask, events_fd: int) -> None:
    """Run the stream to its end."""
    follow_parent()
    with event_sender(events_fd) as send:
        builder = local_cluster(
            f"flights-{task.way}", task.scratch_dir, rows_per_step=task.rows_per_step
        )
        spark = builder.getOrCreate()
        send("started")
        write = _writer(task)

        def write_epoch(df: DataFrame, epoch: int) -> None:
            send("begin", epoch)
            write(df, epoch)
            send("end", epoch)
            # Its rows are sent, but Spark has not recorded that. eos has a failpoint for it.
            if epoch == task.dies_after:
                os.kill(os.getpid(), signal.SIGKILL)

        flights = spark.readStream.schema(_schema(task))
        query = (
            flights.option("maxFilesPerTrigger", FILES_PER_EPOCH)
            .parquet(task.input_dir)
            .selectExpr("to_json(struct(*)) AS value", "tailnum AS key", "time_hour AS event_time")
            .writeStream.foreachBatch(write_epoch)
            .option("checkpointLocation", task.checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        send("finished")
        spark.stop()


def _schema(task: FlightsTask) -> StructType:
    # Of the first file. Spark would run a job to find the columns, which takes seconds.
    first = min(Path(task.input_dir).iterdir())
    return from_arrow_schema(pyarrow.parquet.read_schema(first), prefer_timestamp_ntz=False)


def _writer(task: FlightsTask) -> WriteBatch:
    if task.way == "pulsar_client":
        return write_with_pulsar_client(task.service_url, task.topic)
    from eos import PulsarSink

    return PulsarSink(
        sink_id=SINK_ID,
        service_url=task.service_url,
        topic=task.topic,
        commit_log=task.commit_log,
        admin_url=task.admin_url,
        max_batch_bytes=64 * 1024,  # small steps here too
    )


def write_with_pulsar_client(service_url: str, topic: str) -> Callable[[DataFrame, int], None]:
    """Return a function for ``foreachBatch`` that sends each row as a message to ``topic``.

    It is the usual way to write such a job, written with care: batches, one flush per task.
    """

    def send_partition(rows: Iterable[Row]) -> None:
        client = pulsar.Client(service_url)
        producer = client.create_producer(
            topic, batching_enabled=True, batching_max_publish_delay_ms=10, block_if_queue_full=True
        )
        failures: list[Any] = []

        def on_ack(result: Any, _: Any) -> None:
            if result != pulsar.Result.Ok:
                failures.append(result)

        for row in rows:
            producer.send_async(
                row.value.encode(),
                on_ack,
                partition_key=row.key,
                event_timestamp=int(row.event_time.timestamp() * 1000),
            )
        producer.flush()
        client.close()
        # A failed send fails the task, so no row is lost. But rows that a dead task or driver has
        # sent stay readable, and are sent again.
        if failures:
            raise RuntimeError(f"{len(failures)} sends failed, the first with {failures[0]}")

    def write(df: DataFrame, _: int) -> None:
        df.foreachPartition(send_partition)

    return write


if __name__ == "__main__":
    main(FlightsTask.from_json(sys.argv[1]), int(sys.argv[2]))
