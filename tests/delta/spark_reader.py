"""Answers how delta-spark reads a table; one line of JSON for each line of queries.

python -m tests.delta.spark_reader JARS WAREHOUSE < lines of ["sql", ...]; see test_delta_by_spark.
A question is SQL, or ``files: SELECT ...`` for the number of files that Spark reads for it, or
``both: FOLDER``, for which see ``both_writers``, or ``view: JSON``: a view ``both`` of what
``eos.history`` returns for these arguments, and its error's name and text if it returns nothing.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

import eos
from eos.errors import EosError
from tests.delta.both_writers import write_both


def main() -> None:
    """A session in New York, to expose times that are read in the session's zone."""
    jars, warehouse = sys.argv[1:]
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.jars", jars)
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config(
            "spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog"
        )
        .config("spark.sql.warehouse.dir", warehouse)
        .config("spark.sql.session.timeZone", "America/New_York")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.sources.parallelPartitionDiscovery.parallelism", "1")
        .config("spark.databricks.delta.snapshotPartitions", "1")
        .config("spark.databricks.delta.retentionDurationCheck.enabled", "false")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")  # the pipe is not read
    for line in sys.stdin:
        print(json.dumps([answer(spark, question) for question in json.loads(line)]), flush=True)
    spark.stop()


def answer(spark: SparkSession, question: str) -> object:
    """Rows as lists, a number of files, or the writer that refused."""
    if question.startswith("files: "):
        return len(spark.sql(question.removeprefix("files: ")).inputFiles())
    if question.startswith("both: "):
        return write_both(spark, Path(question.removeprefix("both: ")))
    if question.startswith("view: "):
        try:
            return make_view(spark, **json.loads(question.removeprefix("view: ")))
        except EosError as error:
            return [type(error).__name__, str(error)]
    return [
        [one.hex() if isinstance(one, bytes) else one for one in row]
        for row in spark.sql(question).collect()
    ]


def make_view(spark: SparkSession, adminUrl: str | None = None, **given: str) -> list[str]:  # noqa: N803
    """The view ``both``, by the catalog if there is an ``adminUrl``; returns its columns."""
    if adminUrl is None:
        eos.history(spark, **given).createOrReplaceTempView("both")
    else:
        catalog = eos.PulsarCatalog(spark, given["serviceUrl"], adminUrl)
        catalog.register_history(given["topic"], given["table"], view="both")
    return spark.table("both").columns


if __name__ == "__main__":
    main()
