"""Inserts without and with a key, by a driver without a logging configuration.

python -m tests.catalog.insert_job SERVICE_URL ADMIN_URL COMMIT_LOG TOPIC
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from eos import PulsarCatalog


def main(service_url: str, admin_url: str, commit_log: str, topic: str) -> None:
    """Three statements: the last one is a rerun of the second."""
    spark = (
        SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    catalog = PulsarCatalog(spark, service_url, admin_url, commit_log=commit_log)
    table = catalog.register(topic, sink_id="mine")
    for given in ("", "WITH (epoch='one')", "WITH (epoch='one')"):
        spark.sql(f"INSERT INTO {table} {given} VALUES (binary('a')), (binary('b'))")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
