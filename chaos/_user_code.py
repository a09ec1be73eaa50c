"""Variants of users' code around a sink, for the harness's own workload.

Each writes a line that begins with ``chaos:`` to the driver's log, as proof that it was active.
"""

from __future__ import annotations

import os
import random
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from eos.errors import DuplicateEpochCall

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    Write = Callable[[DataFrame, int], None]
    UserCode = Callable[[SparkSession, Write], Write]

# Variants for one driver, in addition to those of the job; separated by commas.
USER_CODE_ENV: Final = "EOS_CHAOS_USER_CODE"
SLOW_S: Final = 4.0  # time of the slow listener for each epoch
_SECOND_CALL: Final = 2
_FAILS: Final = 0.02  # share of batches (100 rows) after which a task fails


def log_prefix(name: str) -> str:
    """The prefix of the log lines of a variant."""
    return f"chaos: {name}:"


def log_line(name: str, what: object) -> None:
    """Write a line to the driver's log."""
    print(log_prefix(name), what, flush=True)


def with_user_code(names: Iterable[str], spark: SparkSession, write: Write) -> Write:
    """Wrap ``write`` in these variants, and in those of this driver."""
    mine = os.environ.get(USER_CODE_ENV, "")
    for name in (*names, *filter(None, mine.split(","))):
        write = USER_CODE[name](spark, write)
    return write


def _swallows(_: SparkSession, write: Write) -> Write:
    # Spark then considers the epoch done, and its rows would be lost if the sink went on.
    is_over = False

    def call(df: DataFrame, epoch: int) -> None:
        nonlocal is_over
        try:
            write(df, epoch)
        except Exception as error:
            if is_over:
                raise
            is_over = True
            log_line("swallows", f"epoch {epoch}: {type(error).__name__}")

    return call


def _calls_twice(spark: SparkSession, write: Write) -> Write:
    # The second time under another job group, like another part of the user's function.
    calls = 0

    def call(df: DataFrame, epoch: int) -> None:
        nonlocal calls
        write(df, epoch)
        calls += 1
        if calls != _SECOND_CALL:
            return
        spark.sparkContext.setJobGroup("chaos-again", "another part of the same epoch")
        try:
            write(df, epoch)
        except DuplicateEpochCall as error:
            log_line("calls-twice", f"epoch {epoch}, refused: {error.message}")
            raise
        log_line("calls-twice", f"epoch {epoch}, not refused")

    return call


def _sets_job_groups(spark: SparkSession, write: Write) -> Write:
    def call(df: DataFrame, epoch: int) -> None:
        spark.sparkContext.setJobGroup(f"chaos-{epoch}", "the user's own", interruptOnCancel=True)
        write(df, epoch)
        log_line("sets-job-groups", f"epoch {epoch}")

    return call


def _caches(_: SparkSession, write: Write) -> Write:
    def call(df: DataFrame, epoch: int) -> None:
        kept = df.persist()
        try:
            count = kept.count()
            write(kept, epoch)
        finally:
            kept.unpersist()
        log_line("caches", f"epoch {epoch}, {count} rows")

    return call


def _shuffles(_: SparkSession, write: Write) -> Write:
    # Adaptive execution leaves no partitions of an epoch without rows.
    def call(df: DataFrame, epoch: int) -> None:
        write(df.repartition("key"), epoch)
        log_line("shuffles", f"epoch {epoch}")

    return call


def _listens_slowly(spark: SparkSession, write: Write) -> Write:
    from pyspark.sql.streaming.listener import StreamingQueryListener

    class Slow(StreamingQueryListener):
        def onQueryStarted(self, event: object) -> None:  # noqa: N802
            pass

        def onQueryProgress(self, event: object) -> None:  # noqa: ARG002, N802
            time.sleep(SLOW_S)
            log_line("listens-slowly", f"{SLOW_S} s")

        def onQueryIdle(self, event: object) -> None:  # noqa: N802
            pass

        def onQueryTerminated(self, event: object) -> None:  # noqa: N802
            pass

    spark.streams.addListener(Slow())
    return write


def _fails_in_tasks(_: SparkSession, write: Write) -> Write:
    # At least once for each driver, then at random. The marker is a file: workers are processes.
    marker = Path(tempfile.mkdtemp(), "failed")
    text = log_prefix("fails-in-tasks")

    def fail_at_random(frames: Iterable[Any]) -> Iterator[Any]:
        for frame in frames:
            yield frame
            if len(frame) and (_is_new(marker) or random.random() < _FAILS):
                # Spark writes executors' errors to the driver's log: that is the proof.
                raise RuntimeError(f"{text} after {len(frame)} rows")

    def call(df: DataFrame, epoch: int) -> None:
        write(df.mapInPandas(fail_at_random, df.schema), epoch)

    return call


def _is_new(marker: Path) -> bool:
    try:
        marker.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def _has_failing_neighbours(spark: SparkSession, write: Write) -> Write:
    # Like a cell of a notebook that fails and is run again, next to the one that writes.
    def fail(_: DataFrame, epoch: int) -> None:
        raise ValueError(f"the neighbour's epoch {epoch}")

    def start() -> StreamingQuery:
        rates = spark.readStream.format("rate").load()
        return rates.writeStream.foreachBatch(fail).queryName("neighbour").start()

    neighbour = start()

    def call(df: DataFrame, epoch: int) -> None:
        nonlocal neighbour
        write(df, epoch)
        if not neighbour.isActive:
            log_line("has-failing-neighbours", f"epoch {epoch}, {neighbour.id} has failed")
            neighbour = start()

    return call


USER_CODE: Final[dict[str, UserCode]] = {
    "swallows": _swallows,
    "calls-twice": _calls_twice,
    "sets-job-groups": _sets_job_groups,
    "caches": _caches,
    "shuffles": _shuffles,
    "listens-slowly": _listens_slowly,
    "fails-in-tasks": _fails_in_tasks,
    "has-failing-neighbours": _has_failing_neighbours,
}
