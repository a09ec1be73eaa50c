"""Messages in chunks over epochs, tasks and restarts; the Java client sends them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from eos.testing import PulsarStandalone
from tests.support.java_client import JavaMessage, java_client


@pytest.fixture
def sent(pulsar_standalone: PulsarStandalone, name: str) -> list[bytes]:
    """The values of this test's topic: each is one to twelve entries."""
    rng = random.Random(47)
    values = [rng.randbytes(rng.choice([10, 900, 2300])) for _ in range(12)]
    with java_client(pulsar_standalone.service_url) as java:
        messages = [JavaMessage(value) for value in values]
        topic = f"persistent://public/default/{name}"
        java.send(topic, messages, chunking=True, chunkBytes=200)
    return values


def test_a_message_is_in_the_epoch_of_its_last_chunk(
    run: Callable[..., dict[int, list[Any]]], sent: list[bytes], pulsar_standalone: PulsarStandalone
) -> None:
    limits = {"adminUrl": pulsar_standalone.admin_url, "maxEntriesPerTrigger": 7}
    epochs: dict[int, list[Any]] = {}
    with pytest.raises(Exception, match="after the epoch was read"):
        run(fail_in=2, into=epochs, **limits)
    assert set(epochs) == {0, 1, 2}
    run(into=epochs, **limits)  # epoch 2 again, and the rest
    assert len(epochs) > 4
    assert [value for _, values in sorted(epochs.items()) for value in values] == sent


def test_tasks_of_one_partition_share_messages_in_chunks(
    load: Callable[..., Any], sent: list[bytes], pulsar_standalone: PulsarStandalone
) -> None:
    df = load(adminUrl=pulsar_standalone.admin_url, minPartitions=6)
    assert df.rdd.getNumPartitions() == 6
    assert [bytes(row["value"]) for row in df.collect()] == sent
