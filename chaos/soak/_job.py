"""The query: numbers of a topic, counted by second and key, into a topic and a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from eos.chaos.job import INPUT_SUBSCRIPTION, Job
from eos.chaos.soak._plan import DELAY_S, WINDOW_MS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

WORKLOAD: Final = "eos.chaos.soak._job:counts"

SPARK_CONF: Final = {
    # The harness's driver is made for short lives, small steps, and a checkpoint that tells all.
    # This one lives as those of users do.
    "spark.sql.streaming.minBatchesToRetain": "100",
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
}


def counts(spark: SparkSession, job: Job) -> StreamingQuery:
    """Start it."""
    from eos import DeltaSink, PulsarSink, all_or_nothing

    shared: dict[str, Any] = {"sink_id": job.sink_id, "commit_log": job.commit_log}
    writer = all_or_nothing(
        PulsarSink(
            **shared,
            service_url=job.service_url,
            admin_url=job.admin_url,
            topic=job.topic,
            schema="json",
        ),
        DeltaSink(**shared, table=job.table),
        frames=lambda df: [df.selectExpr("*", "slot AS __key"), df],
    )
    rows = _counted(_numbers(spark, job))
    stream = rows.writeStream.foreachBatch(writer)
    return stream.option("checkpointLocation", job.checkpoint).start()


def _numbers(spark: SparkSession, job: Job) -> DataFrame:
    messages = spark.readStream.format("pulsar").options(
        serviceUrl=job.service_url,
        adminUrl=job.admin_url,
        topic=job.input_topic,
        subscription=INPUT_SUBSCRIPTION,
        startingOffsets="earliest",
    )
    columns = "value binary, __key binary, __eventTime timestamp"
    return (
        messages.schema(columns)
        .load()
        .selectExpr(
            "CAST(LTRIM('.', CAST(value AS STRING)) AS BIGINT) AS n",
            "CAST(__key AS STRING) AS slot",
            "__eventTime AS at",
        )
        .withWatermark("at", f"{DELAY_S} seconds")
    )


def _counted(numbers: DataFrame) -> DataFrame:
    """``window_ms``, ``slot``, ``n``, ``total``."""
    from pyspark.sql import functions as f

    window = f.window("at", f"{WINDOW_MS} milliseconds")
    counted = numbers.groupBy(window, "slot").agg(
        f.count("*").alias("counted"), f.sum("n").alias("total")
    )
    return counted.selectExpr(
        "unix_millis(window.start) AS window_ms", "slot", "counted AS n", "total"
    )
