"""A client of Spark Connect that writes a topic: in batch, twice with a key, as a stream, by SQL.

python -m tests.sinks.connect_job OPTIONS_AS_JSON FOLDER
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession


def main(given: str, folder: str) -> None:
    """Write 0 to 5, each once."""
    options = json.loads(given)
    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    batch = spark.range(2).selectExpr("CAST(id AS STRING) AS value")
    for _ in range(2):  # the key makes the second one a no-op
        batch.write.format("pulsar").mode("append").options(**options, epoch="1").save()
    source = Path(folder, "source")
    source.mkdir()
    for value in (2, 3):
        (source / str(value)).write_text(str(value))
        query = (
            spark.readStream.text(str(source))
            .writeStream.format("pulsar")
            .queryName("orders")
            .options(**options, onNewQuery="continue")
            .option("checkpointLocation", f"{folder}/checkpoint")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    text = ", ".join(f"'{name}' = '{value}'" for name, value in options.items())
    spark.sql(f"CREATE TEMPORARY VIEW out (value STRING) USING pulsar OPTIONS ({text})")
    spark.sql("INSERT INTO out VALUES ('4'), ('5')")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
