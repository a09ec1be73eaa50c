"""Write and read messages with the plain client, as users do."""

from __future__ import annotations

import pulsar


def client(service_url: str, token: str | None = None) -> pulsar.Client:
    return pulsar.Client(
        service_url,
        authentication=pulsar.AuthenticationToken(token) if token else None,
        logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
    )


def write(service_url: str, topic: str, values: list[bytes], token: str | None = None) -> None:
    connection = client(service_url, token)
    producer = connection.create_producer(topic)
    for value in values:
        producer.send(value)
    connection.close()


def read(service_url: str, topic: str, count: int) -> list[bytes]:
    connection = client(service_url)
    reader = connection.create_reader(topic, pulsar.MessageId.earliest)
    values = [reader.read_next(20_000).data() for _ in range(count)]
    connection.close()
    return values
