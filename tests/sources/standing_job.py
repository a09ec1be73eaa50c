"""A query that runs until it has read a number of messages.

python -m tests.sources.standing_job SERVICE_URL ADMIN_URL TOPIC MESSAGES
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession


def main(service_url: str, admin_url: str, topic: str, messages: str) -> None:
    """Read a topic from its beginning."""
    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", False).getOrCreate()
    query = (
        spark.readStream.format("pulsar")
        .options(serviceUrl=service_url, adminUrl=admin_url, topic=topic)
        .option("startingOffsets", "earliest")
        .load()
        .writeStream.format("memory")
        .queryName("read")
        .start()
    )
    while spark.table("read").count() < int(messages):
        if query.awaitTermination(1):
            sys.exit("The query has ended.")
    query.stop()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
