"""A short program of a client: a transaction, a reader, a consumer; plain pulsar-client reads."""

from __future__ import annotations

from typing import Any

import pulsar

from eos.client import PulsarClient
from tests.support.judge import quiet_client


def use_all(client: PulsarClient, topic: str) -> str:
    """Write to ``topic`` in a transaction and read it in both ways; return the broker's address."""
    with client.transaction(timeout_s=30) as txn:
        client.entry_producer(topic, create=True).send(b"x", txn=txn)
    with client.reader(topic) as reader:
        read = [value for batch in reader.read_to(reader.last_id) for value in batch["value"]]
    with client.consumer(topic, "readers") as consumer:
        message = consumer.receive(timeout_s=20)
        assert message is not None
        consumer.acknowledge(message)
    assert [value.as_py() for value in read] == [message.value] == [b"x"]
    return str(client.lookup.broker_of(topic).address)


def plain_read(service_url: str, topic: str, **options: Any) -> bytes:
    """Return the first message of ``topic``, read by plain pulsar-client."""
    client = quiet_client(service_url, **options)
    try:
        reader = client.create_reader(topic, pulsar.MessageId.earliest)
        return bytes(reader.read_next(20_000).data())
    finally:
        client.close()
