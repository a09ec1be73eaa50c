"""One DataFrame in two Delta tables: by ``DeltaSink``, and by Spark's own writer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from eos import DeltaSink
from eos.errors import EosError
from tests.support.frames import frame_of

Answer = dict[str, str | None]


def write_both(spark: SparkSession, folder: Path) -> Answer:
    """Write the saved frame in ``folder`` to the tables ``ours`` and ``sparks``; save the rows that
    Spark reads from them as ``ours.arrow`` and ``sparks.arrow``.

    Returns:
        By table: why it was refused; None if it was written.
    """
    df = frame_of(spark, folder)
    ours = _refusal(lambda: _by_sink(df, folder), EosError)
    sparks = _refusal(lambda: _by_spark(df, folder), PySparkException)
    for name, reason in (("ours", ours), ("sparks", sparks)):
        if reason is None:
            found = spark.read.format("delta").load(str(folder / name)).toArrow()
            with pa.ipc.new_file(folder / f"{name}.arrow", found.schema) as file:
                file.write_table(found)
    return {"ours": ours, "sparks": sparks}


def _by_sink(df: DataFrame, folder: Path) -> None:
    sink = DeltaSink(
        sink_id=folder.name, table=str(folder / "ours"), commit_log=str(folder.parent / "log")
    )
    try:
        sink.write(df, epoch="rows")
    finally:
        sink.close()


def _by_spark(df: DataFrame, folder: Path) -> None:
    # Statistics of many columns take Spark longer than anything else, and are not compared.
    df.sparkSession.conf.set("spark.databricks.delta.stats.collect", "false")
    df.write.format("delta").save(str(folder / "sparks"))


def _refusal(write: Callable[[], None], kind: type[Exception]) -> str | None:
    try:
        write()
    except kind as error:
        return str(error)
    return None
