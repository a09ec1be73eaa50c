"""``eos catalog list`` and ``describe``."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer
from rich.console import Console
from rich.filesize import decimal
from rich.table import Table

from eos.admin import AdminClient
from eos.catalog._cluster_topics import ClusterTopics, TopicDescription, type_name
from eos.catalog._topic_arguments import TopicGiven, must_exist, namespace_of
from eos.cli.cluster import Cluster
from eos.cli.reports import (
    Exit,
    Facts,
    Report,
    age_s,
    counted,
    duration,
    escape,
    facts_table,
    table_of,
)
from eos.client import PulsarClient
from eos.errors import BrokerNotReady, ConfigurationError, TopicNotFound, Unauthorized
from eos.ids import TopicName
from eos.waiting import parallel_map


class NamespacesReport(Report):
    """The namespaces of a cluster, or of one tenant."""

    namespaces: list[str]

    @property
    def exit(self) -> Exit:
        """Always clean."""
        return Exit.CLEAN

    def render(self, console: Console) -> None:
        """Print one line for each."""
        for name in self.namespaces:
            console.print(escape(name), highlight=False)
        if not self.namespaces:
            console.print("There are no namespaces.")


class TopicFacts(Facts):
    """One topic of a list; facts that were not requested or not available are null."""

    topic: str
    partitions: int | None = None
    schema_type: str | None = None
    storage_bytes: int | None = None
    error: str | None = None


class TopicsReport(Report):
    """The topics of a namespace."""

    namespace: str
    topics: list[TopicFacts]

    @property
    def exit(self) -> Exit:
        """Return unknown if a topic could not be read."""
        return Exit.UNKNOWN if any(one.error for one in self.topics) else Exit.CLEAN

    def render(self, console: Console) -> None:
        """Print a table, without the namespace in each name."""
        if not self.topics:
            console.print(f"There are no topics in {escape(self.namespace)}.", highlight=False)
            return
        has_sizes = any(one.storage_bytes is not None for one in self.topics)
        table = Table(title=escape(self.namespace), title_justify="left")
        table.add_column("topic", overflow="fold")
        table.add_column("partitions", justify="right", no_wrap=True)
        table.add_column("schema", no_wrap=True)
        if has_sizes:
            table.add_column("size", justify="right", no_wrap=True)
        for one in self.topics:
            name = escape(TopicName.parse(one.topic).local)
            if one.error is not None:
                name += f"\n[red]{escape(one.error)}[/]"
            row = [name, _or_dash(one.partitions), escape(one.schema_type or "-")]
            if has_sizes:
                row.append("-" if one.storage_bytes is None else decimal(one.storage_bytes))
            table.add_row(*row)
        console.print(table)


def list_verb(
    cluster: Cluster,
    namespace: Annotated[
        str | None,
        typer.Argument(
            metavar="[TENANT/NAMESPACE]", help="List its topics; without it, the namespaces."
        ),
    ] = None,
    tenant: Annotated[
        str | None, typer.Option(help="Only its namespaces; those of all need a superuser.")
    ] = None,
    sizes: Annotated[
        bool,
        typer.Option("--sizes", help="Also the topics' sizes; brokers load each topic for that."),
    ] = False,
) -> Report:
    """List namespaces, or the topics of one, without the broker's own.

    A topic has 0 partitions if it is not partitioned. Needs --admin-url; for topics --service-url
    as well.

        eos catalog list

        eos catalog list --tenant public

        eos catalog list public/default --sizes

    Exit codes: 0 shown; 2 something could not be reached or read; 64 wrong options, or no such
    tenant or namespace.
    """
    topics = ClusterTopics(cluster.admin(), cluster.client)
    if namespace is None:
        with must_exist(f"tenant {tenant}"):
            return NamespacesReport(namespaces=topics.namespaces(tenant))
    if tenant is not None:
        raise ConfigurationError("Give a namespace or --tenant, not both.")
    name = namespace_of(namespace)
    with must_exist(f"namespace {name}"):
        names = topics.names(name)
    with cluster.client() as client:
        found = _each(client, cluster.admin(), names, with_sizes=sizes)
    return TopicsReport(namespace=name, topics=found)


def _each(
    client: PulsarClient, admin: AdminClient, names: list[TopicName], *, with_sizes: bool
) -> list[TopicFacts]:
    def facts_of(name: TopicName) -> TopicFacts | None:
        size = None
        try:
            partitions = client.partition_count(str(name))
            if with_sizes:
                size = admin.topic_stats(name, is_partitioned=partitions > 0).storage_bytes
            return TopicFacts(
                topic=str(name),
                partitions=partitions,
                schema_type=type_name(client.schema(str(name))),
                storage_bytes=size,
            )
        except TopicNotFound:
            return None  # just dropped
        except (Unauthorized, BrokerNotReady) as error:  # of this topic alone
            return TopicFacts(topic=str(name), error=error.message)

    return [one for one in parallel_map(facts_of, names) if one is not None]


def _or_dash(number: int | None) -> str:
    return "-" if number is None else str(number)


class PartitionFacts(Facts):
    """The size of one partition."""

    topic: str
    entries: int
    storage_bytes: int


class BacklogFacts(Facts):
    """One durable subscription."""

    name: str
    backlog: int
    consumers: int
    acknowledged_at: datetime | None

    def in_words(self) -> str:
        """Return its backlog and its users, as text."""
        age = age_s(self.acknowledged_at)
        when = f", acknowledged {duration(age)} ago" if age is not None else ""
        users = "no consumer" if not self.consumers else f"{self.consumers} consuming"
        return f"{self.name}: backlog {self.backlog:,}, {users}{when}"


class DescribeReport(Report):
    """One topic."""

    topic: str
    partitions: int
    schema_type: str
    schema_version: int | None
    schema_text: str
    storage_bytes: int
    entries: int
    messages_in: int  # since its brokers loaded it
    producers: int
    readers: int
    retention_minutes: int | None  # -1: no limit; None: unknown
    retention_megabytes: int | None  # the same
    subscriptions: list[BacklogFacts]
    sizes: list[PartitionFacts]

    @property
    def exit(self) -> Exit:
        """Always clean."""
        return Exit.CLEAN

    def render(self, console: Console) -> None:
        """Print facts, a table of the partitions, and the schema."""
        console.print(f"[bold]{escape(self.topic)}[/]", highlight=False)
        console.print(facts_table(self._facts()), highlight=False)
        if self.partitions:
            console.print(self._partition_table())
        if self.schema_text:
            console.print(escape(self.schema_text), highlight=False, soft_wrap=True)

    def _facts(self) -> list[tuple[str, str]]:
        version = "" if self.schema_version is None else f", version {self.schema_version}"
        return [
            ("partitions", str(self.partitions or "none: it is not partitioned")),
            ("schema", f"{self.schema_type}{version}"),
            ("size", f"{decimal(self.storage_bytes)} in {counted(self.entries, 'entry')}"),
            ("messages in", f"{self.messages_in:,} since the brokers loaded it"),
            ("producers", str(self.producers)),
            ("readers", str(self.readers)),
            ("retention", kept(self.retention_minutes, self.retention_megabytes)),
            *(("subscription", one.in_words()) for one in self.subscriptions),
        ]

    def _partition_table(self) -> Table:
        table = table_of("partition", "entries", "size")
        for one in self.sizes:
            index = TopicName.parse(one.topic).partition_index
            table.add_row(str(index), f"{one.entries:,}", decimal(one.storage_bytes))
        return table


def kept(minutes: int | None, megabytes: int | None) -> str:
    """Return how long messages are kept after all subscriptions have acknowledged them, as text."""
    if minutes is None or megabytes is None:
        return "unknown: topic-level policies are disabled, or not visible to this role"
    if minutes == 0 or megabytes == 0:
        return "messages are deleted after all subscriptions have acknowledged them"
    if minutes < 0 and megabytes < 0:
        return "all messages are kept"
    limits = [duration(minutes * 60)] if minutes > 0 else []
    limits += [f"{megabytes} MB"] if megabytes > 0 else []
    return f"acknowledged messages are kept for {' or '.join(limits)}"


def report_of(description: TopicDescription) -> DescribeReport:
    """Convert a description to a report."""
    stats, retention = description.stats, description.retention
    return DescribeReport(
        topic=description.topic,
        partitions=description.partitions,
        schema_type=description.schema_type,
        schema_version=description.schema_version,
        schema_text=description.schema_text,
        storage_bytes=stats.storage_bytes,
        entries=sum(one.entries for one in description.sizes),
        messages_in=stats.messages_in,
        producers=stats.producers,
        readers=stats.readers,
        retention_minutes=None if retention is None else retention.minutes,
        retention_megabytes=None if retention is None else retention.megabytes,
        subscriptions=[BacklogFacts(**vars(one)) for one in stats.subscriptions],
        sizes=[PartitionFacts(**vars(one)) for one in description.sizes],
    )


def describe_verb(cluster: Cluster, topic: TopicGiven) -> DescribeReport:
    """Describe a topic: its partitions, schema, sizes, users and retention.

    An entry is a producer's batch of messages, or a marker of a transaction. A backlog is a
    subscription's unacknowledged messages. Needs --service-url and --admin-url.

        eos catalog describe orders

        eos catalog describe public/default/orders --json

    Exit codes: 0 shown; 2 something could not be reached; 64 wrong options, or no such topic.
    """
    name = TopicName.parse(topic)
    with must_exist(f"topic {name}"):
        return report_of(ClusterTopics(cluster.admin(), cluster.client).describe(name))
