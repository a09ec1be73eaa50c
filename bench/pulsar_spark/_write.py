"""How its users write with it."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

FORMAT = "org.apache.spark.sql.pulsar.PulsarProvider"
"""Its short name, ``pulsar``, is ours as well."""


_BLOCK: Final = "pulsar.producer.blockIfQueueFull"
"""Not its default, by which a task fails when the broker falls behind it (MemoryBufferIsFullError,
seen with 195,312 rows of 1,024 bytes)."""


def write(df: DataFrame, service_url: str, topic: str) -> None:
    """The column ``value`` of ``df`` as bytes, by the connector's defaults otherwise."""
    writer = _values(df).write.format(FORMAT).option("service.url", service_url)
    writer.option("topic", topic).option(_BLOCK, "true").mode("append").save()


def stream(df: DataFrame, service_url: str, topic: str) -> DataStreamWriter:
    """The same of a stream, by the connector's own sink."""
    writer = _values(df).writeStream.format(FORMAT).option("service.url", service_url)
    return writer.option("topic", topic).option(_BLOCK, "true")


def _values(df: DataFrame) -> DataFrame:
    return df.selectExpr("CAST(value AS BINARY) AS value")
