"""The driver program: a stream of flight events from files to a Pulsar topic, written either way.

Run by the demo as a process of its own, because it gets killed. What it does with Spark is what
any job does; the rest tells the demo, as JSON lines through a pipe, how far it is.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

import pyarrow.parquet
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from eos.chaos.cluster.spark_env import local_cluster
from examples.flights.data import FILES_PER_EPOCH
from examples.flights.run import Way

WriteBatch = Callable[[DataFrame, int], None]

SINK_ID = "flights"


@dataclass(frozen=True)
class FlightsJob:
    """What one driver program is told.

    Attributes:
        way: with ``pulsar-client`` as written today, or with ``PulsarSink``.
        input_dir: folder of the Parquet files.
        scratch_dir: for everything temporary of Spark.
        checkpoint: of the streaming query; the same after a restart.
        commit_log: root folder, for ``PulsarSink``.
        rows_per_step: how many rows go to Python at a time.
        dies_after: epoch after whose last row the job, written as today, kills itself: its rows
            are sent, but Spark has not noted so. (``PulsarSink`` has a failpoint for that.)
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

    def to_json(self) -> str:
        """For the command line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The inverse of ``to_json``."""
        return cls(**json.loads(text))


def main(job: FlightsJob, events_fd: int) -> None:
    """Run the stream to its end."""
    _end_with_parent()
    with os.fdopen(events_fd, "w", buffering=1) as events:

        def tell(event: str, epoch: int = -1) -> None:
            events.write(json.dumps({"event": event, "epoch": epoch, "at": time.time()}) + "\n")

        builder = local_cluster(
            f"flights-{job.way}", job.scratch_dir, rows_per_step=job.rows_per_step
        )
        spark = builder.getOrCreate()
        tell("started")
        write = _writer(job)

        def write_epoch(df: DataFrame, epoch: int) -> None:
            tell("begin", epoch)
            write(df, epoch)
            tell("end", epoch)
            if epoch == job.dies_after:
                os.kill(os.getpid(), signal.SIGKILL)

        flights = spark.readStream.schema(_schema(job))
        query = (
            flights.option("maxFilesPerTrigger", FILES_PER_EPOCH)
            .parquet(job.input_dir)
            .selectExpr("to_json(struct(*)) AS value", "tailnum AS key", "time_hour AS event_time")
            .writeStream.foreachBatch(write_epoch)
            .option("checkpointLocation", job.checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        tell("finished")
        spark.stop()


def _schema(job: FlightsJob) -> StructType:
    """The columns of the first file. Asking Spark would cost a job, and seconds."""
    first = min(Path(job.input_dir).iterdir())
    return from_arrow_schema(pyarrow.parquet.read_schema(first), prefer_timestamp_ntz=False)


def _writer(job: FlightsJob) -> WriteBatch:
    if job.way == "today":
        from examples.flights.today import write_with_pulsar_client

        return write_with_pulsar_client(job.service_url, job.topic)
    from eos import PulsarSink

    return PulsarSink(
        sink_id=SINK_ID,
        service_url=job.service_url,
        topic=job.topic,
        commit_log=job.commit_log,
        admin_url=job.admin_url,
        max_batch_bytes=64 * 1024,  # small steps here too
    )


def _end_with_parent() -> None:
    """End when the demo does, however it ends: its end of our stdin closes then."""

    def wait() -> None:
        # Not sys.stdin: its lock would be held when the interpreter shuts down.
        while os.read(0, 1):
            pass
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=wait, daemon=True).start()


if __name__ == "__main__":
    main(FlightsJob.from_json(sys.argv[1]), int(sys.argv[2]))
