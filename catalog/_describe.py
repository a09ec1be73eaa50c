"""What is told of a topic."""

from __future__ import annotations

from dataclasses import dataclass

from eos.admin import AdminClient, Retention, TopicStats
from eos.client import PulsarClient
from eos.ids import TopicName
from eos.wire.commands import SchemaInfo, SchemaType


@dataclass(frozen=True)
class TopicDescription:
    """A topic, as the broker knows it.

    Attributes:
        partitions: 0: it is not partitioned.
        schema_type: ``avro``, ``json``, ``string`` and so on; ``bytes`` without a schema.
        schema_text: the registry's definition; "" where the type says all.
        stats: what it holds, and its subscriptions with their backlog.
    """

    topic: str
    partitions: int
    schema_type: str
    schema_text: str
    stats: TopicStats
    retention: Retention


def describe(client: PulsarClient, admin: AdminClient, topic: TopicName) -> TopicDescription:
    """Ask for everything.

    Raises:
        TopicNotFound: there is no such topic.
        EosError: the broker refuses, or does not answer.
    """
    partitions = client.partition_count(str(topic))
    info = client.schema(str(topic))
    return TopicDescription(
        topic=str(topic),
        partitions=partitions,
        schema_type=type_name(info),
        schema_text="" if info is None else info.data.decode("utf-8", "replace"),
        stats=admin.topic_stats(topic, is_partitioned=partitions > 0),
        retention=admin.retention(topic),
    )


def type_name(info: SchemaInfo | None) -> str:
    """As the options of source and sink call it."""
    if info is None or info.type == SchemaType.NONE:
        return "bytes"
    try:
        name = SchemaType(info.type).name.lower()
    except ValueError:  # of a later Pulsar
        return f"type {info.type}"
    return "protobuf" if name == "protobuf_native" else name
