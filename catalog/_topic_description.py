"""The description of a topic."""

from __future__ import annotations

from dataclasses import dataclass

from eos.admin import AdminClient, Retention, TopicStats
from eos.client import PulsarClient
from eos.errors import TopicNotFound
from eos.ids import TopicName
from eos.schemas import definition_text
from eos.wire.commands import SchemaInfo, SchemaType


@dataclass(frozen=True)
class PartitionSize:
    """The size of one partition, or of an unpartitioned topic. ``entries``: batches of messages and
    markers of transactions."""

    topic: str
    entries: int
    storage_bytes: int


@dataclass(frozen=True)
class TopicDescription:
    """A topic: its schema, partitions, sizes, backlog, retention and subscriptions.

    Attributes:
        partitions: 0 if it is not partitioned.
        schema_type: ``avro``, ``json``, ``string`` and so on; ``bytes`` without a schema.
        schema_version: of the newest schema, counted from 0; None without a schema.
        schema_text: the registered definition; "" if the type alone defines it.
        stats: its size and users, and its subscriptions with their backlog.
        sizes: of each partition, in order.
    """

    topic: str
    partitions: int
    schema_type: str
    schema_version: int | None
    schema_text: str
    stats: TopicStats
    retention: Retention
    sizes: tuple[PartitionSize, ...]


def describe(client: PulsarClient, admin: AdminClient, topic: TopicName) -> TopicDescription:
    """Describe ``topic``.

    Raises:
        TopicNotFound: it does not exist.
        EosError: the broker refuses, or does not answer.
    """
    partitions = client.partition_count(str(topic))
    found = client.lookup.schema(topic.base)
    info = None if found is None else found[0]
    return TopicDescription(
        topic=str(topic),
        partitions=partitions,
        schema_type=type_name(info),
        schema_version=None if found is None else int.from_bytes(found[1], "big"),
        schema_text="" if info is None else definition_text(info),
        stats=admin.topic_stats(topic, is_partitioned=partitions > 0),
        retention=admin.retention(topic.base),
        sizes=tuple(_size(admin, exact) for exact in topic.partitions(partitions)),
    )


def _size(admin: AdminClient, exact: TopicName) -> PartitionSize:
    try:
        ledgers = admin.ledgers(exact)
    except TopicNotFound:  # a partition that was never used
        ledgers = []
    return PartitionSize(
        str(exact), sum(one.entries for one in ledgers), sum(one.bytes for one in ledgers)
    )


def users_of(stats: TopicStats) -> list[str]:
    """Return the current users of a topic, which can't be dropped while it has some, in words."""
    found = [(stats.producers, "producer", ""), (stats.readers, "reader", "")]
    found += [(one.consumers, "consumer", f" of {one.name}") for one in stats.subscriptions]
    return [
        f"{count} {kind}{'s' if count > 1 else ''}{whose}" for count, kind, whose in found if count
    ]


def type_name(info: SchemaInfo | None) -> str:
    """Return the name of a schema's type in the options of source and sinks."""
    if info is None or info.type == SchemaType.NONE:
        return "bytes"
    try:
        name = SchemaType(info.type).name.lower()
    except ValueError:  # of a later Pulsar
        return f"type {info.type}"
    return "protobuf" if name == "protobuf_native" else name
