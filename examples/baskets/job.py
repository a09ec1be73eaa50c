"""The driver program: baskets of a topic, counted by shop and day, into a topic and a table.

Run by the demo as a process of its own, because it gets killed. What it does with Spark is what
any job does; the rest tells the demo, as JSON lines through a pipe, how far it is.

``dropDuplicatesWithinWatermark`` would be the usual way to count a basket once. It would also hide
a message that the source has read twice. So the query counts twice: messages of each basket, then
baskets and messages of each shop and day; and the demo compares both.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Final, Self

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, count, timestamp_millis, window
from pyspark.sql.functions import sum as total
from pyspark.sql.streaming.query import StreamingQuery

from eos import DeltaSink, PulsarSink, all_or_nothing
from eos.chaos.cluster.spark_env import local_cluster
from eos.events import EpochListener, StateChanged
from eos.failpoints import armed
from eos.protocol import State
from eos.steps import Step
from examples.baskets.orders import obey

TellEvent = Callable[..., None]

SINK_ID: Final = "baskets"
SUBSCRIPTION: Final = "baskets"
TRIGGER: Final = "3 seconds"
_POLL_S: Final = 1
_MESSAGE: Final = json.dumps(
    {
        "type": "record",
        "name": "Basket",
        "fields": [{"name": name, "type": "long"} for name in ("basket", "store", "at_ms")],
    }
)


@dataclass(frozen=True)
class BasketsJob:
    """What one driver program is told.

    Attributes:
        scratch_dir: for everything temporary of Spark.
        checkpoint: of the streaming query; the same after a restart.
        commit_log: root folder. ``table``: of the Delta table.
        delay_s: of the watermark: how late a basket may come.
        closed_at: what the watermark has to reach before the job may finish, as ISO text.
    """

    scratch_dir: str
    checkpoint: str
    service_url: str
    admin_url: str
    source: str
    target: str
    table: str
    commit_log: str
    delay_s: float
    closed_at: str

    def to_json(self) -> str:
        """For the command line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The inverse of ``to_json``."""
        return cls(**json.loads(text))


class CommitTeller(EpochListener):
    """Tells how many rows each committed epoch has."""

    def __init__(self, tell: TellEvent) -> None:
        self._tell = tell

    def on_state_changed(self, event: StateChanged) -> None:
        """A record is in the commit log."""
        if event.state is State.COMMITTED and event.epoch is not None:
            rows = max((one.records for one in event.written), default=0)
            self._tell("committed", int(event.epoch), {"rows": rows})


def main(job: BasketsJob, events_fd: int) -> None:
    """Run the stream until it is ordered to finish, and all windows are closed."""
    is_to_finish, is_to_die = threading.Event(), threading.Event()
    obey({"finish": is_to_finish.set, "die": is_to_die.set})

    def die_if_ordered() -> None:
        if is_to_die.is_set():
            os.kill(os.getpid(), signal.SIGKILL)

    # Behind PREPARED all is sent, and nothing is readable yet.
    with (
        armed(Step.PREPARE, die_if_ordered),
        os.fdopen(events_fd, "w", buffering=1) as events,
    ):

        def tell(event: str, epoch: int = -1, facts: Mapping[str, Any] | None = None) -> None:
            line = {"event": event, "epoch": epoch, "at": time.time(), "facts": facts or {}}
            events.write(json.dumps(line) + "\n")

        builder = local_cluster("baskets", job.scratch_dir, rows_per_step=500)
        spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
        tell("started")
        write = _writer(job, tell)

        def write_epoch(df: DataFrame, epoch: int) -> None:
            tell("begin", epoch)
            write(df, epoch)
            tell("end", epoch)

        query = (
            counts(spark, job)
            .writeStream.foreachBatch(write_epoch)
            .option("checkpointLocation", job.checkpoint)
            .trigger(processingTime=TRIGGER)
            .start()
        )
        _follow(query, tell, is_to_finish.is_set, job.closed_at)
        query.stop()
        write.close()
        tell("finished")
        spark.stop()


def counts(spark: SparkSession, job: BasketsJob) -> DataFrame:
    """The rows of the closed windows: ``store``, ``day``, ``baskets``, ``messages``."""
    messages = (
        spark.readStream.format("pulsar")
        .options(serviceUrl=job.service_url, topic=job.source, subscription=SUBSCRIPTION)
        .options(startingOffsets="earliest", schema="json", schemaDefinition=_MESSAGE)
        .load()
        .withColumn("at", timestamp_millis("at_ms"))
        .withWatermark("at", f"{job.delay_s} seconds")
    )
    by_basket = messages.groupBy(window("at", "1 day"), "store", "basket").agg(
        count("*").alias("messages")
    )
    by_shop = by_basket.groupBy("window", "store").agg(
        count("*").alias("baskets"), total("messages").alias("messages")
    )
    day = col("window.start").cast("date").alias("day")
    return by_shop.select("store", day, "baskets", "messages")


def _writer(job: BasketsJob, tell: TellEvent) -> Any:
    """Into the topic and into the table, or into neither."""
    return all_or_nothing(
        PulsarSink(
            sink_id=SINK_ID,
            commit_log=job.commit_log,
            service_url=job.service_url,
            admin_url=job.admin_url,
            topic=job.target,
            schema="json",
            listeners=[CommitTeller(tell)],
        ),
        DeltaSink(sink_id=SINK_ID, commit_log=job.commit_log, table=job.table),
        frames=lambda df: [df.withColumn("__key", col("store").cast("string")), df],
    )


def _follow(
    query: StreamingQuery, tell: TellEvent, is_to_finish: Callable[[], bool], closed_at: str
) -> None:
    """TellEvent how far the watermark is, until it has closed all windows, and they are written.

    Raises:
        StreamingQueryException: the query failed.
    """
    told = -1
    until = datetime.fromisoformat(closed_at)
    while True:
        # It raises what ended the query.
        query.awaitTermination(_POLL_S)
        for progress in query.recentProgress:
            if progress["batchId"] <= told:
                continue
            told = progress["batchId"]
            watermark = progress["eventTime"].get("watermark")
            late = sum(one["numRowsDroppedByWatermark"] for one in progress["stateOperators"])
            tell("progress", told, {"watermark": watermark, "late": late})
            if is_to_finish() and watermark and datetime.fromisoformat(watermark) >= until:
                query.processAllAvailable()
                return


if __name__ == "__main__":
    main(BasketsJob.from_json(sys.argv[1]), int(sys.argv[2]))
