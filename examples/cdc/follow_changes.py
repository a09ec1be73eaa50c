"""The driver program: a stream of changes to a Delta table, to PostgreSQL and to a compacted topic.

The demo runs it in a separate process and kills it. Events: ``started``, ``end`` of an epoch.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from eos import DeltaSink, PostgresSink, PulsarSink, all_or_nothing
from eos.chaos.cluster.spark_env import local_cluster
from eos.sinks.sink import Sink
from examples._demo.subprocesses import Task, event_sender, follow_parent
from examples.cdc.shop import CHANGES

SINK_ID: Final = "customers"
_ROW: Final = "id BIGINT, name STRING, city STRING, spent DOUBLE"
_EVENT: Final = (
    f"before STRUCT<{_ROW}>, after STRUCT<{_ROW}>, source STRUCT<lsn: BIGINT>, op STRING"
)


@dataclass(frozen=True)
class CdcTask(Task):
    """The settings of one run of the program."""

    scratch_dir: str
    checkpoint: str
    service_url: str
    conninfo: str
    table: str
    topic: str
    commit_log: str


def changes_of(df: DataFrame) -> DataFrame:
    """Return the changes in Debezium's messages: the row's columns, ``op`` and ``lsn``."""
    event = f.from_json(f.col("value").cast("string"), _EVENT)
    changes = df.where("length(value) > 0").select(event.alias("e"))
    row = f.coalesce(f.col("e.after"), f.col("e.before")).alias("row")
    return changes.select(row, "e.op", f.col("e.source.lsn").alias("lsn")).select(
        "row.*", "lsn", "op"
    )


def messages_of(changes: DataFrame) -> DataFrame:
    """Return the message of each key's last change: the row as JSON, or none for a delete."""
    # A topic has no upsert: of a key's changes only the last one is sent, as tasks have no order.
    last = changes.groupBy("id").agg(f.max_by(f.struct("*"), "lsn").alias("last")).select("last.*")
    value = f.to_json(f.struct("id", "name", "city", "spent", "lsn"))
    return last.select(
        f.col("id").cast("string").alias("key"), f.when(f.col("op") != "d", value).alias("value")
    )


def sink_of(task: CdcTask) -> Sink:
    """Return the sink: three outputs, each epoch in all of them or in none."""
    shared: dict[str, Any] = {"sink_id": SINK_ID, "commit_log": task.commit_log}
    upsert: dict[str, Any] = {"merge_on": ["id"], "latest_by": ["lsn"], "delete_when": "op = 'd'"}
    return all_or_nothing(
        PulsarSink(
            **shared,
            service_url=task.service_url,
            topic=task.topic,
            create_topics=True,
            null_values="tombstone",
            request_timeout_s=10,
        ),
        DeltaSink(**shared, **upsert, table=task.table),
        PostgresSink(**shared, **upsert, conninfo=task.conninfo, table="customers"),
        frames=lambda df: [messages_of(changes_of(df)), changes_of(df), changes_of(df)],
    )


def main(task: CdcTask, events_fd: int) -> None:
    """Run the stream until the demo ends it."""
    follow_parent()
    with event_sender(events_fd) as send:
        spark = local_cluster("cdc", task.scratch_dir, rows_per_step=1000).getOrCreate()
        sink = sink_of(task)
        send("started")

        def write(df: DataFrame, epoch: int) -> None:
            sink(df, epoch)
            send("end", epoch)

        messages = spark.readStream.format("pulsar").options(
            serviceUrl=task.service_url,
            topic=CHANGES,
            subscription="cdc",
            startingOffsets="earliest",
            requestTimeoutS=10,
        )
        query = (
            messages.load()
            .writeStream.foreachBatch(write)
            .option("checkpointLocation", task.checkpoint)
            .start()
        )
        query.awaitTermination()


if __name__ == "__main__":
    main(CdcTask.from_json(sys.argv[1]), int(sys.argv[2]))
