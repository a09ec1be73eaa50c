"""Query shapes of the harness's workload, and in which epoch each writes a record.

The event time of a record is the number of its input, in seconds since ``BASE_S``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from eos.chaos._soak_plan import DELAY_S as SOAK_DELAY_S
from eos.chaos._soak_plan import WINDOW_MS
from eos.chaos._spark_checkpoint import Checkpoint
from eos.chaos.checker.history import Record
from eos.chaos.job import INPUT_SUBSCRIPTION, READS_TOPIC, Job, QueryShape

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BASE_S: Final = 1_700_000_000
WINDOW_S: Final = 2
DELAY_S: Final = 5  # delay of the watermark, because partitions are not read at the same time
_LAST: Final = 2**31 - 1  # its place, which Spark must be able to read as an int
# The flush record is this many inputs ahead, closes all windows, and stays in its own.
FLUSH: Final = 100

_AT: Final = (
    f"timestamp_seconds({BASE_S} + CAST(split_part(split_part(value, '|', 2), '/', 1) AS INT))"
)


@dataclass(frozen=True)
class ShapeTraits:
    """Properties of a query shape."""

    comes_twice: bool = False  # each record is in two inputs
    readings: int = 1  # number of times that the query reads its input
    has_windows: bool = False  # records are written when their window is closed
    keeps_order: bool = True  # the records of a key stay in order


SHAPES: Final[dict[QueryShape, ShapeTraits]] = {
    "stream": ShapeTraits(),
    "scattered": ShapeTraits(keeps_order=False),
    "notebook": ShapeTraits(),
    "stateful": ShapeTraits(comes_twice=True, keeps_order=False),
    "grouped": ShapeTraits(comes_twice=True, keeps_order=False),
    "windowed": ShapeTraits(has_windows=True, keeps_order=False),
    "joined": ShapeTraits(readings=2, keeps_order=False),
    "counted": ShapeTraits(keeps_order=False),
}

# Spark's settings for ``counted``.
SOAK_CONF: Final = {
    # The harness's settings suit short runs with small steps. A soak has those of users.
    "spark.sql.streaming.minBatchesToRetain": "100",
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
}


def rows_of(spark: SparkSession, job: Job) -> DataFrame:
    """The rows that the query of ``job`` writes: each record once."""
    match job.shape:
        case "stateful":
            return job.input(spark).dropDuplicates(["value"])
        case "scattered":
            return _scattered(job.input(spark), job.tasks)
        case "grouped":
            return _grouped(job.input(spark))
        case "windowed":
            return _windowed(job.input(spark))
        case "joined":
            other = job.input(spark, f"{INPUT_SUBSCRIPTION}-again")
            return _joined(job.input(spark), other)
        case "counted":
            return _counted(spark, job)
    return job.input(spark)


def _scattered(rows: DataFrame, tasks: int) -> DataFrame:
    # Another run of a task has other rows: only one of them may count, as a whole.
    from pyspark.sql import functions as f

    drawn = "map('uuid', uuid(), 'rand', string(rand()), 'at', string(current_timestamp()))"
    return rows.selectExpr("*", f"{drawn} AS properties").repartition(tasks, f.rand())


def _grouped(rows: DataFrame) -> DataFrame:
    return rows.groupBy("value").applyInPandasWithState(
        _first_of_group, "value string, key string", "seen boolean", "append", "NoTimeout"
    )


def _first_of_group(_: object, frames: Iterable[Any], state: Any) -> Iterator[Any]:
    for frame in frames:
        if not state.exists:
            state.update((True,))
            yield frame[["value", "key"]].head(1)


def _windowed(rows: DataFrame) -> DataFrame:
    # Counts with their records, so that each record can be looked for in the output.
    from pyspark.sql import functions as f

    counted = (
        rows.withColumn("at", f.expr(_AT))
        .withWatermark("at", f"{DELAY_S} seconds")
        .groupBy(f.window("at", f"{WINDOW_S} seconds"), "key")
        .agg(f.count("*").alias("n"), f.collect_list("value").alias("records"))
    )
    each = counted.select("key", "n", f.size("records").alias("there"), f.explode("records"))
    # A wrong count yields records that were never written.
    text = "to_json(struct(n, IF(n = there, col, 'miscounted') AS record))"
    return each.selectExpr(f"{text} AS value", "key")


def _joined(rows: DataFrame, others: DataFrame) -> DataFrame:
    # With itself, from a second reading of the input: each record comes out exactly once.
    from pyspark.sql import functions as f

    def side(frame: DataFrame, *names: str) -> DataFrame:
        timed = frame.withColumn("at", f.expr(_AT)).withWatermark("at", f"{DELAY_S} seconds")
        return timed.toDF(*names)

    left, right = side(rows, "value", "key", "at"), side(others, "other", "other_key", "other_at")
    on = f.expr("value = other AND at = other_at")
    return left.join(right, on).select("value", "key")


def _counted(spark: SparkSession, job: Job) -> DataFrame:
    # ``SoakPlan.expected`` has the same counts, from the plan alone.
    from pyspark.sql import functions as f

    print(f"{READS_TOPIC} {job.input_topic}", flush=True)
    messages = spark.readStream.format("pulsar").options(
        serviceUrl=job.service_url,
        adminUrl=job.admin_url,
        topic=job.input_topic,
        subscription=INPUT_SUBSCRIPTION,
        startingOffsets="earliest",
    )
    numbers = (
        messages.schema("value binary, __key binary, __eventTime timestamp")
        .load()
        .selectExpr(
            "CAST(LTRIM('.', CAST(value AS STRING)) AS BIGINT) AS n",
            "CAST(__key AS STRING) AS key",
            "__eventTime AS at",
        )
        .withWatermark("at", f"{SOAK_DELAY_S} seconds")
    )
    counted = numbers.groupBy(f.window("at", f"{WINDOW_MS} milliseconds"), "key").agg(
        f.count("*").alias("n"), f.sum("n").alias("total")
    )
    value = "CONCAT_WS('/', unix_millis(window.start), key, n, total) AS value"
    return counted.selectExpr(value, "key")


def emits(
    shape: QueryShape, checkpoint: Checkpoint, read_in: Callable[[Record], str | None]
) -> Callable[[Record], str | None]:
    """Return a function that finds the epoch that writes a record; ``read_in``: that reads it."""
    if not SHAPES[shape].has_windows:
        return read_in
    watermarks = [(epoch, checkpoint.watermark_s(epoch)) for epoch in checkpoint.planned()]

    def find(record: Record) -> str | None:
        read = read_in(record)
        return None if read is None else _closed_in(record, int(read), watermarks)

    return find


def _closed_in(record: Record, read: int, watermarks: Sequence[tuple[int, float]]) -> str | None:
    at_s = BASE_S + number_of(record)
    end_s = at_s - at_s % WINDOW_S + WINDOW_S
    # Spark writes a window in the first epoch whose watermark has passed its end.
    closing = (n for n, watermark_s in watermarks if n >= read and watermark_s >= end_s)
    epoch = next(closing, None)
    return None if epoch is None else str(epoch)


def number_of(record: Record) -> int:
    """The number of the record's input; that of the flush record is ahead of its position."""
    return int(record.id.partition("/")[0])


def flush(inputs: int) -> Record:
    """The single record of the last input, which closes all windows."""
    number = inputs + FLUSH
    return Record(f"{number}/0", str(number), place=_LAST, input=inputs)


def is_quiet(checkpoint: Checkpoint, last: Record) -> bool:
    """Whether all windows that the flush record ``last`` closes are written."""
    noted = checkpoint.noted()
    if not noted or noted[-1] != checkpoint.planned()[-1]:
        return False
    # An epoch without input may follow: it writes the windows that the last one has closed.
    return checkpoint.watermark_s(noted[-1]) >= BASE_S + number_of(last) - DELAY_S
