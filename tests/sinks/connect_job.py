"""A client of Spark Connect: it writes a topic in batch, twice with a key, as a stream, and by SQL;
then it reads the topic in batch, as a stream, and again.

python -m tests.sinks.connect_job OPTIONS_AS_JSON FOLDER
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession


def main(given: str, folder: str) -> None:
    """Write 0 to 5, each once; print what was read as one line of JSON."""
    options = json.loads(given)
    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    write(spark, options, folder)
    reading = {"startingOffsets": "earliest", "schema": "string"}
    reading |= {name: options[name] for name in ("serviceUrl", "topic")}
    batch = spark.read.format("pulsar").options(**reading, metadata=True).load()
    stream = spark.readStream.format("pulsar").options(**reading).load()
    for _ in range(2):  # a restart reads nothing again
        run(stream, f"{folder}/read", "parquet", path=f"{folder}/out")
    written = spark.read.parquet(f"{folder}/out")
    found = {
        "batch": sorted(row.value for row in batch.collect()),
        "stream": sorted(row.value for row in written.collect()),
        "columns": batch.columns,
    }
    print(json.dumps(found), flush=True)
    spark.stop()


def write(spark: SparkSession, options: dict[str, str], folder: str) -> None:
    """Write by each way."""
    batch = spark.range(2).selectExpr("CAST(id AS STRING) AS value")
    for _ in range(2):  # the key makes the second one a no-op
        batch.write.format("pulsar").mode("append").options(**options, epoch="1").save()
    source = Path(folder, "source")
    source.mkdir()
    for value in (2, 3):
        (source / str(value)).write_text(str(value))
        lines = spark.readStream.text(str(source))
        run(lines, f"{folder}/checkpoint", "pulsar", **options, onNewQuery="continue")
    text = ", ".join(f"'{name}' = '{value}'" for name, value in options.items())
    spark.sql(f"CREATE TEMPORARY VIEW out (value STRING) USING pulsar OPTIONS ({text})")
    spark.sql("INSERT INTO out VALUES ('4'), ('5')")


def run(stream: DataFrame, checkpoint: str, kind: str, **options: str) -> None:
    """Run a query until all is read."""
    writer = stream.writeStream.format(kind).queryName("orders").trigger(availableNow=True)
    writer = writer.options(**options).option("checkpointLocation", checkpoint)
    writer.start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
