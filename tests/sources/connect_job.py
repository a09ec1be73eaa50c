"""A client of Spark Connect that reads a topic: in batch, as a stream, and again.

python -m tests.sources.connect_job SERVICE_URL TOPIC FOLDER
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession


def main(service_url: str, topic: str, folder: str) -> None:
    """Print what was read as one line of JSON."""
    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    options = {"serviceUrl": service_url, "topic": topic, "startingOffsets": "earliest"}
    batch = spark.read.format("pulsar").options(**options, schema="string", metadata=True).load()
    stream = spark.readStream.format("pulsar").options(**options, schema="string").load()
    for _ in range(2):  # a restart reads nothing again
        query = (
            stream.writeStream.format("parquet")
            .option("checkpointLocation", f"{folder}/checkpoint")
            .trigger(availableNow=True)
            .start(f"{folder}/out")
        )
        query.awaitTermination()
    written = spark.read.parquet(f"{folder}/out")
    found = {
        "batch": sorted(row.value for row in batch.collect()),
        "stream": sorted(row.value for row in written.collect()),
        "columns": batch.columns,
    }
    print(json.dumps(found), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
