"""The driver program: a stream of flights into both; a process of its own, as it gets killed."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow.parquet
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import struct, to_json
from pyspark.sql.pandas.types import from_arrow_schema

from eos import DeltaSink, PulsarSink, all_or_nothing
from examples.flights.data import FILES_PER_EPOCH


def main(service_url: str, topic: str, folder: str) -> None:
    """Write every epoch of the stream to the topic and to the table, once."""
    both = all_or_nothing(
        PulsarSink(
            sink_id="flights",
            commit_log=f"{folder}/log",
            service_url=service_url,
            topic=topic,
            create_topics=True,
        ),
        DeltaSink(
            sink_id="flights",
            commit_log=f"{folder}/log",
            table=f"{folder}/table",
            partition_by=["origin"],
        ),
        frames=_frames,
    )
    spark = SparkSession.builder.master("local[2]").appName("topic and table").getOrCreate()
    first = next(Path(folder, "input").glob("*.parquet"))
    schema = from_arrow_schema(pyarrow.parquet.read_schema(first))
    flights = spark.readStream.schema(schema).option("maxFilesPerTrigger", FILES_PER_EPOCH)
    query = (
        flights.parquet(f"{folder}/input")
        .writeStream.foreachBatch(both)
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    both.close()
    spark.stop()


def _frames(flights: DataFrame) -> list[DataFrame]:
    """For the topic whole rows as JSON, by carrier; for the table the columns as they are."""
    return [
        flights.select(to_json(struct("*")).alias("value"), flights.carrier.alias("key")),
        flights,
    ]


if __name__ == "__main__":
    main(*sys.argv[1:])
