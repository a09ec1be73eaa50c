"""Topics to read from, and readers of them."""

from __future__ import annotations

from collections.abc import Callable, Sized
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter

from eos.client import PulsarClient
from eos.ids import MessageId
from eos.testing import PulsarStandalone
from tests.support.admin import call
from tests.support.spark_releases import HAS_READ_LIMITS

Load = Callable[..., DataFrame]


@pytest.fixture
def options(pulsar_standalone: PulsarStandalone, name: str) -> dict[str, Any]:
    """The options for reading this test's topic."""
    return {"serviceUrl": pulsar_standalone.service_url, "topic": name}


def _given(options: dict[str, Any]) -> dict[str, Any]:
    """Remove options that a test sets to None, which Spark does not accept."""
    return {name: value for name, value in options.items() if value is not None}


@pytest.fixture
def load(spark: SparkSession, options: dict[str, Any]) -> Load:
    """Makes batch reads of this test's topic, given columns and further options."""

    def read(columns: str | None = None, /, **more: Any) -> DataFrame:
        reader = spark.read.format("pulsar").options(**_given(options | more))
        return (reader.schema(columns) if columns else reader).load()

    return read


@pytest.fixture
def send(client: PulsarClient, name: str) -> Callable[..., list[MessageId]]:
    """Sends one entry for each value, to this test's topic by default."""

    def send(*values: bytes, topic: str = name) -> list[MessageId]:
        producer = client.entry_producer(topic, create="-partition-" not in topic)
        ids = [one.result(timeout=20) for one in [producer.send(value) for value in values]]
        producer.close()
        return ids

    return send


def run_to_end(writer: DataStreamWriter, checkpoint: Path, epochs: Sized) -> None:
    """Run a query, which adds to ``epochs``, until it has read all messages."""
    known = -1
    while known < len(epochs):
        known = len(epochs)
        located = writer.option("checkpointLocation", str(checkpoint))
        query = located.trigger(availableNow=True).start()
        try:
            query.awaitTermination(120)
        finally:
            query.stop()
        if HAS_READ_LIMITS:
            break  # before Spark 4.2, one start runs one epoch


@pytest.fixture
def run(
    spark: SparkSession, options: dict[str, Any], tmp_path: Path
) -> Callable[..., dict[int, list[Any]]]:
    """Runs the query until it has read all messages; returns the values of each epoch that ran.

    They are added to ``into``, also if the query fails.
    """

    def run(
        fail_in: int | None = None,
        column: str = "value",
        into: dict[int, list[Any]] | None = None,
        **more: Any,
    ) -> dict[int, list[Any]]:
        epochs = {} if into is None else into

        def note(df: DataFrame, epoch: int) -> None:
            values = [row[column] for row in df.collect()]
            epochs[epoch] = [bytes(one) if isinstance(one, bytearray) else one for one in values]
            if epoch == fail_in:
                raise RuntimeError("after the epoch was read")

        chosen = {**options, "startingOffsets": "earliest", **more}
        stream = spark.readStream.format("pulsar").options(**_given(chosen)).load()
        run_to_end(stream.writeStream.foreachBatch(note), tmp_path / "checkpoint", epochs)
        return epochs

    return run


@pytest.fixture
def topic_admin(pulsar_standalone: PulsarStandalone, name: str) -> Callable[..., Any]:
    """Calls the admin API for a topic, by default this test's: ``("PUT", "/unload")``."""

    def ask(method: str, path: str = "", body: object = None, *, topic: str = name) -> Any:
        whole = f"/v2/persistent/public/default/{topic}{path}"
        return call(pulsar_standalone.admin_url, method, whole, body)

    return ask


@pytest.fixture
def trim(topic_admin: Callable[..., Any]) -> Callable[[], None]:
    """Deletes all ledgers of the topic that are not kept, including the last one."""

    def trim() -> None:
        topic_admin("PUT", "/unload")
        topic_admin("POST", "/trim")

    return trim
