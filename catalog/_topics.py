"""The topics of a cluster: what there is, told, made and dropped; without Spark."""

from __future__ import annotations

from collections.abc import Callable

from eos.admin import AdminClient, TopicStats
from eos.catalog._describe import TopicDescription, describe, users_of
from eos.client import PulsarClient
from eos.errors import ConfigurationError, NotAllowed
from eos.ids import TopicName
from eos.wire.commands import SchemaInfo


class ClusterTopics:
    """Each method raises an ``EosError`` when the broker refuses, or does not answer.

    Args:
        connect: makes a client, for as long as it is needed.
    """

    def __init__(self, admin: AdminClient, connect: Callable[[], PulsarClient]) -> None:
        self._admin = admin
        self._connect = connect

    def namespaces(self, tenant: str | None = None) -> list[str]:
        """``tenant/namespace`` each; of all tenants, which takes a superuser, when None."""
        tenants = self._admin.tenants() if tenant is None else [tenant]
        return [name for one in tenants for name in self._admin.namespaces(one)]

    def names(self, namespace: str) -> list[TopicName]:
        """The topics of ``tenant/namespace``, without the broker's own."""
        return self._admin.topics(namespace)

    def describe(self, topic: TopicName) -> TopicDescription:
        """All that is known of it.

        Raises:
            TopicNotFound: there is no such topic.
        """
        with self._connect() as client:
            return describe(client, self._admin, topic)

    def create(self, topic: TopicName, partitions: int, schema: SchemaInfo | None) -> None:
        """Make a topic, and register its schema.

        Raises:
            ConfigurationError: there is a topic of that name.
        """
        with self._connect() as client:
            if client.exists(str(topic)):
                raise ConfigurationError(f"Topic {topic} already exists.")
            self._admin.create_topic(topic, partitions)
            if schema is not None:  # the first producer brings it
                (producer,) = client.entry_producers(
                    [str(topic.partitions(partitions)[0])], schema=schema
                )
                producer.close()

    def drop(self, topic: TopicName, *, confirm: str) -> None:
        """Delete a topic with all its messages, for everybody.

        Args:
            confirm: the topic's full name once more.

        Raises:
            ConfigurationError: ``confirm`` is another name.
            TopicNotFound: there is no such topic.
            NotAllowed: somebody uses it.
            BrokerNotReady: the same; it came to use it at this moment.
        """
        if confirm != str(topic):
            raise ConfigurationError(
                f"This deletes {topic} with all its messages, for everybody.",
                hint=f"Confirm it by the topic's full name, {topic}.",
            )
        with self._connect() as client:
            is_partitioned = client.partition_count(str(topic)) > 0
        check_droppable(topic, self._admin.topic_stats(topic, is_partitioned=is_partitioned))
        self._admin.delete_topic(topic, is_partitioned=is_partitioned)


def check_droppable(topic: TopicName, stats: TopicStats) -> None:
    """Before anything is deleted: of a partitioned topic the broker deletes what nobody uses.

    Raises:
        ConfigurationError: it is one partition of a topic.
        NotAllowed: somebody uses it.
    """
    if topic.partition_index is not None:
        raise ConfigurationError(
            f"{topic} is a partition, and can't be dropped alone.", hint=f"Drop {topic.base}."
        )
    if users := users_of(stats):
        raise NotAllowed(
            f"{topic} is in use: {', '.join(users)}. Nothing was deleted.",
            hint="Stop them, then drop it again.",
        )
