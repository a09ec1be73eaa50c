"""How its users write with it."""

from __future__ import annotations

from pyspark.sql import DataFrame

FORMAT = "org.apache.spark.sql.pulsar.PulsarProvider"
"""Its short name, ``pulsar``, is ours as well."""


def write(df: DataFrame, service_url: str, topic: str) -> None:
    """The column ``value`` of ``df`` as bytes, by the connector's defaults."""
    values = df.selectExpr("CAST(value AS BINARY) AS value")
    writer = values.write.format(FORMAT).option("service.url", service_url)
    writer.option("topic", topic).mode("append").save()
