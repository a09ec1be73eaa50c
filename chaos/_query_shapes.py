"""What shapes of queries there are: when they write what they have read, and in which epoch.

Event time is the number of an input, in seconds since ``BASE_S``: each input is a second later.
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
DELAY_S: Final = 5
"""So far behind the newest input another one may come: partitions are not read at one instant."""
_LAST: Final = 2**31 - 1
FLUSH: Final = 100
"""So many inputs ahead is the record that closes all windows, and stays in one itself."""

_AT: Final = (
    f"timestamp_seconds({BASE_S} + CAST(split_part(split_part(value, '|', 2), '/', 1) AS INT))"
)


@dataclass(frozen=True)
class ShapeTraits:
    """Of one shape.

    Attributes:
        comes_twice: each record comes in two inputs.
        readings: how often the query reads its input.
        has_windows: records wait until their window is over.
        keeps_order: of a key's records.
    """

    comes_twice: bool = False
    readings: int = 1
    has_windows: bool = False
    keeps_order: bool = True


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

SOAK_CONF: Final = {
    # The harness's settings suit short runs with small steps. A soak has those of users.
    "spark.sql.streaming.minBatchesToRetain": "100",
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
}
"""Spark's settings for ``counted``."""


def rows_of(spark: SparkSession, job: Job) -> DataFrame:
    """What the query of ``job`` writes: each record that it reads, once."""
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
    """Nothing of it is the same when a task runs again: neither its rows nor what is in them."""
    from pyspark.sql import functions as f

    drawn = "map('uuid', uuid(), 'rand', string(rand()), 'at', string(current_timestamp()))"
    return rows.selectExpr("*", f"{drawn} AS properties").repartition(tasks, f.rand())


def _grouped(rows: DataFrame) -> DataFrame:
    """The first of each value, by a function of the user's own that keeps state."""
    return rows.groupBy("value").applyInPandasWithState(
        _first_of_group, "value string, key string", "seen boolean", "append", "NoTimeout"
    )


def _first_of_group(_: object, frames: Iterable[Any], state: Any) -> Iterator[Any]:
    for frame in frames:
        if not state.exists:
            state.update((True,))
            yield frame[["value", "key"]].head(1)


def _windowed(rows: DataFrame) -> DataFrame:
    """Counted by key and window; with each count the records that make it."""
    from pyspark.sql import functions as f

    counted = (
        rows.withColumn("at", f.expr(_AT))
        .withWatermark("at", f"{DELAY_S} seconds")
        .groupBy(f.window("at", f"{WINDOW_S} seconds"), "key")
        .agg(f.count("*").alias("n"), f.collect_list("value").alias("records"))
    )
    each = counted.select("key", "n", f.size("records").alias("there"), f.explode("records"))
    # A count that is not that of its records gives records that nobody knows.
    text = "to_json(struct(n, IF(n = there, col, 'miscounted') AS record))"
    return each.selectExpr(f"{text} AS value", "key")


def _joined(rows: DataFrame, others: DataFrame) -> DataFrame:
    """Each record with itself, as the other reading has it."""
    from pyspark.sql import functions as f

    def side(frame: DataFrame, *names: str) -> DataFrame:
        timed = frame.withColumn("at", f.expr(_AT)).withWatermark("at", f"{DELAY_S} seconds")
        return timed.toDF(*names)

    left, right = side(rows, "value", "key", "at"), side(others, "other", "other_key", "other_at")
    on = f.expr("value = other AND at = other_at")
    return left.join(right, on).select("value", "key")


def _counted(spark: SparkSession, job: Job) -> DataFrame:
    """The rows of a soak, counted by second and key; see ``SoakPlan.expected``."""
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
    """Tells the epoch that writes a record; None: none does.

    Args:
        read_in: tells the epoch that has read it.
    """
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
    closing = (n for n, watermark_s in watermarks if n >= read and watermark_s >= end_s)
    epoch = next(closing, None)
    return None if epoch is None else str(epoch)


def number_of(record: Record) -> int:
    """The number of the input that it is of; the flush's is ahead of its place."""
    return int(record.id.partition("/")[0])


def flush(inputs: int) -> Record:
    """The only record of an input more, behind so many: it closes all windows."""
    number = inputs + FLUSH
    return Record(f"{number}/0", str(number), place=_LAST, input=inputs)


def is_quiet(checkpoint: Checkpoint, last: Record) -> bool:
    """Whether all windows are closed that ``last``, the flush, closes."""
    noted = checkpoint.noted()
    if not noted or noted[-1] != checkpoint.planned()[-1]:
        return False
    return checkpoint.watermark_s(noted[-1]) >= BASE_S + number_of(last) - DELAY_S
