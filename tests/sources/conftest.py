"""Topics to read from, and readers of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from eos.client import PulsarClient
from eos.ids import MessageId
from eos.standalone import PulsarStandalone

Load = Callable[..., DataFrame]


@pytest.fixture
def options(pulsar_standalone: PulsarStandalone, name: str) -> dict[str, Any]:
    """What every reader of this test's topic needs."""
    return {"serviceUrl": pulsar_standalone.service_url, "topic": name}


@pytest.fixture
def load(spark: SparkSession, options: dict[str, Any]) -> Load:
    """Batch reads of this test's topic; ``schema`` and further options."""

    def read(schema: str | None = None, **more: Any) -> DataFrame:
        reader = spark.read.format("pulsar").options(**(options | more))
        return (reader.schema(schema) if schema else reader).load()

    return read


@pytest.fixture
def send(client: PulsarClient, name: str) -> Callable[..., list[MessageId]]:
    """Sends one entry for each value; to this test's topic unless another is named."""

    def send(*values: bytes, topic: str = name) -> list[MessageId]:
        producer = client.producer(topic, create="-partition-" not in topic)
        ids = [one.result(timeout=20) for one in [producer.send(value) for value in values]]
        producer.close()
        return ids

    return send
