"""Lists, describes, creates and drops the topics of a cluster, without Spark."""

from __future__ import annotations

from collections.abc import Callable

from eos.admin import AdminClient, TopicStats
from eos.catalog._topic_description import TopicDescription, describe, users_of
from eos.client import PulsarClient
from eos.errors import ConfigurationError, NotAllowed
from eos.ids import TopicName
from eos.wire.commands import SchemaInfo


class ClusterTopics:
    """The topics of a cluster. Each method raises an ``EosError`` if the broker refuses, or does
    not answer.

    Args:
        connect: makes a client.
    """

    def __init__(self, admin: AdminClient, connect: Callable[[], PulsarClient]) -> None:
        self._admin = admin
        self._connect = connect

    def namespaces(self, tenant: str | None = None) -> list[str]:
        """Return namespaces as ``tenant/namespace``; None: of all tenants, for superusers."""
        tenants = self._admin.tenants() if tenant is None else [tenant]
        return [name for one in tenants for name in self._admin.namespaces(one)]

    def names(self, namespace: str) -> list[TopicName]:
        """Return the topics of ``tenant/namespace``, without the broker's own."""
        return self._admin.topics(namespace)

    def describe(self, topic: TopicName) -> TopicDescription:
        """Describe a topic.

        Raises:
            TopicNotFound: it does not exist.
        """
        with self._connect() as client:
            return describe(client, self._admin, topic)

    def create(self, topic: TopicName, partitions: int, schema: SchemaInfo | None) -> None:
        """Create a topic, and register its schema.

        Raises:
            ConfigurationError: the topic already exists.
        """
        with self._connect() as client:
            if client.exists(str(topic)):
                raise ConfigurationError(f"Topic {topic} already exists.")
            self._admin.create_topic(topic, partitions)
            if schema is not None:  # a producer registers it
                (producer,) = client.entry_producers(
                    [str(topic.partitions(partitions)[0])], schema=schema
                )
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
    """Check that no part of a topic is in use: of a partitioned topic the broker would delete the
    unused partitions.

    Raises:
        ConfigurationError: it is one partition of a topic.
        NotAllowed: it is in use.
    """
    if topic.partition_index is not None:
        raise ConfigurationError(
            f"{topic} is a partition, which can't be dropped alone.", hint=f"Drop {topic.base}."
        )
    if users := users_of(stats):
        raise NotAllowed(
            f"{topic} is in use: {', '.join(users)}. Nothing was deleted.",
            hint="Stop these users, then drop it again.",
        )
