"""The driver program: reads baskets from a topic, counts them by store and day, into both outputs.

The demo runs it in a separate process and kills it. Its use of Spark is that of any job; the rest
reports its progress to the demo: events ``started``, ``begin`` and ``end`` of an epoch,
``committed`` (fact ``rows``), ``progress`` (facts ``watermark`` and ``late``), ``finished``.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

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
from examples._demo.subprocesses import SendEvent, Task, event_sender, follow_parent

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
class BasketsTask(Task):
    """The settings of one run of the program.

    Attributes:
        source, target: the input and the output topic.
        delay_s: of the watermark: how late a basket may arrive.
        closed_at: the watermark at which the job may finish, as ISO text.
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


class CommitReporter(EpochListener):
    """Reports the number of rows of each committed epoch."""

    def __init__(self, send: SendEvent) -> None:
        self._send = send

    def on_state_changed(self, event: StateChanged) -> None:
        """Report a COMMITTED record of the log."""
        if event.state is State.COMMITTED and event.epoch is not None:
            rows = max((one.records for one in event.written), default=0)
            self._send("committed", int(event.epoch), rows=rows)


def main(task: BasketsTask, events_fd: int) -> None:
    """Run the stream until the command ``finish`` has arrived and all windows are closed.

    The command ``die`` kills this process after its next PREPARED record.
    """
    must_finish, must_die = threading.Event(), threading.Event()
    follow_parent({"finish": must_finish.set, "die": must_die.set})

    def die_if_commanded() -> None:
        # The worst moment: after PREPARED all rows are sent, and none is readable.
        if must_die.is_set():
            os.kill(os.getpid(), signal.SIGKILL)

    with armed(Step.PREPARE, die_if_commanded), event_sender(events_fd) as send:
        builder = local_cluster("baskets", task.scratch_dir, rows_per_step=500)
        spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
        send("started")
        write = _writer(task, send)

        def write_epoch(df: DataFrame, epoch: int) -> None:
            send("begin", epoch)
            write(df, epoch)
            send("end", epoch)

        query = (
            counts(spark, task)
            .writeStream.foreachBatch(write_epoch)
            .option("checkpointLocation", task.checkpoint)
            .trigger(processingTime=TRIGGER)
            .start()
        )
        _follow(query, send, must_finish.is_set, task.closed_at)
        query.stop()
        write.close()
        send("finished")
        spark.stop()


def counts(spark: SparkSession, task: BasketsTask) -> DataFrame:
    """Return the rows of the closed windows: ``store``, ``day``, ``baskets``, ``messages``."""
    messages = (
        spark.readStream.format("pulsar")
        .options(serviceUrl=task.service_url, topic=task.source, subscription=SUBSCRIPTION)
        .options(startingOffsets="earliest", schema="json", schemaDefinition=_MESSAGE)
        .load()
        .withColumn("at", timestamp_millis("at_ms"))
        .withWatermark("at", f"{task.delay_s} seconds")
    )
    # ``dropDuplicatesWithinWatermark`` would be the usual way to count a basket once. It would also
    # hide a message that the source has read twice. So the query counts twice: messages of each
    # basket, then baskets and messages of each store and day. The demo checks both numbers.
    by_basket = messages.groupBy(window("at", "1 day"), "store", "basket").agg(
        count("*").alias("messages")
    )
    by_shop = by_basket.groupBy("window", "store").agg(
        count("*").alias("baskets"), total("messages").alias("messages")
    )
    day = col("window.start").cast("date").alias("day")
    return by_shop.select("store", day, "baskets", "messages")


def _writer(task: BasketsTask, send: SendEvent) -> Any:
    return all_or_nothing(
        PulsarSink(
            sink_id=SINK_ID,
            commit_log=task.commit_log,
            service_url=task.service_url,
            admin_url=task.admin_url,
            topic=task.target,
            schema="json",
            listeners=[CommitReporter(send)],
        ),
        DeltaSink(sink_id=SINK_ID, commit_log=task.commit_log, table=task.table),
        frames=lambda df: [df.withColumn("__key", col("store").cast("string")), df],
    )


def _follow(
    query: StreamingQuery, send: SendEvent, must_finish: Callable[[], bool], closed_at: str
) -> None:
    reported = -1
    until = datetime.fromisoformat(closed_at)
    while True:
        # Raises the query's error.
        query.awaitTermination(_POLL_S)
        for progress in query.recentProgress:
            if progress["batchId"] <= reported:
                continue
            reported = progress["batchId"]
            watermark = progress["eventTime"].get("watermark")
            late = sum(one["numRowsDroppedByWatermark"] for one in progress["stateOperators"])
            send("progress", reported, watermark=watermark, late=late)
            if must_finish() and watermark and datetime.fromisoformat(watermark) >= until:
                query.processAllAvailable()
                return


if __name__ == "__main__":
    main(BasketsTask.from_json(sys.argv[1]), int(sys.argv[2]))
