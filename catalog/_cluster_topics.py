"""The topics of a cluster, without Spark: lists, describes, creates and drops them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from eos.admin import AdminClient, Retention, TopicStats
from eos.client import PulsarClient
from eos.errors import (
    BrokerNotReady,
    ConfigurationError,
    EosError,
    NotAllowed,
    TopicNotFound,
    Unauthorized,
)
from eos.ids import TopicName
from eos.schemas import (
    AvroSchema,
    JsonSchema,
    PrimitiveSchema,
    ProtobufSchema,
    Schema,
    definition_text,
    schema_of,
)
from eos.wire.commands import SchemaInfo, SchemaType


@dataclass(frozen=True)
class PartitionSize:
    """The size of one partition, or of an unpartitioned topic."""

    topic: str
    entries: int  # batches of messages, and markers of transactions
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
        retention: None if topic-level policies are disabled, or not visible to this role.
        sizes: of each partition, in order.
    """

    topic: str
    partitions: int
    schema_type: str
    schema_version: int | None
    schema_text: str
    stats: TopicStats
    retention: Retention | None
    sizes: tuple[PartitionSize, ...]


def _size(admin: AdminClient, exact: TopicName) -> PartitionSize:
    try:
        ledgers = admin.ledgers(exact)
    except TopicNotFound:  # a partition that was never used
        ledgers = []
    return PartitionSize(
        str(exact), sum(one.entries for one in ledgers), sum(one.bytes for one in ledgers)
    )


def _retention(admin: AdminClient, topic: TopicName) -> Retention | None:
    try:
        return admin.retention(topic)
    except (Unauthorized, BrokerNotReady):
        return None


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
    # Source and sinks have one name for both kinds.
    return "protobuf" if name == "protobuf_native" else name


class ClusterTopics:
    """The topics of a cluster; ``connect`` makes a client.

    Each method raises an ``EosError`` if the broker refuses, or does not answer.
    """

    def __init__(self, admin: AdminClient, connect: Callable[[], PulsarClient]) -> None:
        self._admin = admin
        self._connect = connect

    def namespaces(self, tenant: str | None = None) -> list[str]:
        """Return namespaces as ``tenant/namespace``; None: of all tenants."""
        tenants = self._admin.tenants() if tenant is None else [tenant]  # all: superusers only
        return [name for one in tenants for name in self._admin.namespaces(one)]

    def names(self, namespace: str) -> list[TopicName]:
        """Return the topics of ``tenant/namespace``, without the broker's own."""
        return self._admin.topics(namespace)

    def describe(self, topic: TopicName) -> TopicDescription:
        """Describe a topic; TopicNotFound if it does not exist."""
        with self._connect() as client:
            partitions = client.partition_count(str(topic))
            found = client.lookup.schema(topic.base)
        info = None if found is None else found[0]
        return TopicDescription(
            topic=str(topic),
            partitions=partitions,
            schema_type=type_name(info),
            schema_version=None if found is None else int.from_bytes(found[1], "big"),
            schema_text="" if info is None else definition_text(info),
            stats=self._admin.topic_stats(topic, is_partitioned=partitions > 0),
            retention=_retention(self._admin, topic.base),
            sizes=tuple(_size(self._admin, exact) for exact in topic.partitions(partitions)),
        )

    def create(self, topic: TopicName, partitions: int, schema: SchemaInfo | None) -> None:
        """Create a topic, and register its schema; ConfigurationError if it already exists."""
        if partitions < 0:
            raise ConfigurationError(
                f"partitions={partitions}: a topic has 0 (not partitioned), or more."
            )
        with self._connect() as client:
            if client.exists(str(topic)):
                raise ConfigurationError(
                    f"Topic {topic} already exists.",
                    hint="Use it as it is, or choose another name.",
                )
            self._admin.create_topic(topic, partitions)
            if schema is not None:
                try:  # a producer registers it
                    (producer,) = client.entry_producers(
                        [str(topic.partitions(partitions)[0])], schema=schema
                    )
                except EosError as error:
                    error.message += f" {topic} was created, but without its schema."
                    error.hint = f"{error.hint} Drop the topic before you create it again.".strip()
                    raise
                producer.close()

    def drop(self, topic: TopicName, *, confirm: str) -> None:
        """Delete a topic with all its messages, for all users.

        Args:
            confirm: the topic's full name again.

        Raises:
            ConfigurationError: ``confirm`` is another name.
            TopicNotFound: the topic does not exist.
            NotAllowed: it is in use.
            BrokerNotReady: it has just come into use.
        """
        # I8: the name must be given twice, as a drop can't be undone.
        if confirm != str(topic):
            raise ConfigurationError(
                f"This deletes {topic} with all its messages, for all users.",
                hint=f"Confirm it with the topic's full name, {topic}.",
            )
        with self._connect() as client:
            is_partitioned = client.partition_count(str(topic)) > 0
        check_droppable(topic, self._admin.topic_stats(topic, is_partitioned=is_partitioned))
        self._admin.delete_topic(topic, is_partitioned=is_partitioned)


def check_droppable(topic: TopicName, stats: TopicStats) -> None:
    """Raise ConfigurationError for one partition of a topic, NotAllowed for a topic in use."""
    # Of a partitioned topic the broker would delete the unused partitions.
    if topic.partition_index is not None:
        raise ConfigurationError(
            f"{topic} is a partition, which can't be dropped alone.", hint=f"Drop {topic.base}."
        )
    # The broker answers 412, but deletes the other partitions: so check first (measured).
    if users := users_of(stats):
        raise NotAllowed(
            f"{topic} is in use: {', '.join(users)}. Nothing was deleted.",
            hint="Stop these users, then drop it again.",
        )


def new_schema(schema: Schema | str, row: pa.StructType | None) -> SchemaInfo | None:
    """Return the schema to register; None: values are bytes.

    ``schema``: a name, or the user's own; ``row``: the columns, for names such as ``avro``.

    Raises:
        ConfigurationError, InputError: the schema is unknown, or the columns don't fit it.
    """
    wanted = schema_of(schema) if isinstance(schema, str) else schema
    known = _known(wanted)
    if wanted is None or known is not None:
        if row is not None:
            raise ConfigurationError(f"The schema {schema!r} takes no columns.")
        return known
    if row is None:
        raise ConfigurationError(
            f"The schema {schema!r} needs columns.",
            hint="Set them: columns='id BIGINT, name STRING'.",
        )
    if len(wanted.columns) > 1 and sorted(row.names) != sorted(wanted.columns):
        raise ConfigurationError(
            f"The schema {schema!r} takes the columns {' and '.join(wanted.columns)}, not "
            f"{', '.join(row.names)}.",
            hint="Set them: columns='key BIGINT, value STRUCT<name: STRING>'.",
        )
    return wanted.writer(row).info


def _known(schema: Schema | None) -> SchemaInfo | None:
    """Return the schema if it is complete without columns."""
    match schema:
        case ProtobufSchema(message=""):  # it is derived from the columns
            return None
        case PrimitiveSchema() | ProtobufSchema():
            return schema.info
        case AvroSchema(definition=str(text)) | JsonSchema(definition=str(text)):
            return SchemaInfo(data=text.encode(), type=schema.type)
    return None
