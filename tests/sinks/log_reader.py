"""Reads a commit log with delta-spark and SQL; prints two lines of JSON. See test_log_by_spark.

python -m tests.sinks.log_reader TABLE JARS WAREHOUSE
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession


def main() -> None:
    """Count the states; list each committed epoch with its figures."""
    table, jars, warehouse = sys.argv[1:]
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.jars", jars)  # not spark.jars.packages: Ivy trips over Maven's folder
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config(
            "spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog"
        )
        .config("spark.sql.warehouse.dir", warehouse)
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    spark.read.format("delta").load(table).createOrReplaceTempView("log")
    states = spark.sql("SELECT state, count(*) AS n FROM log GROUP BY state").collect()
    print(json.dumps({row.state: row.n for row in states}))
    rows = spark.sql(
        "SELECT epoch, records, string(checksum) AS checksum, partitions[0].topic AS topic "
        "FROM log WHERE state = 'COMMITTED' ORDER BY seq"
    ).collect()
    print(json.dumps([[row.epoch, row.records, row.checksum, row.topic] for row in rows]))
    spark.stop()


if __name__ == "__main__":
    main()
