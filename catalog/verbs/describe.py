"""``eos catalog describe``: describe a topic."""

from __future__ import annotations

from datetime import datetime

from rich.console import Console
from rich.filesize import decimal
from rich.table import Table

from eos.admin import Retention
from eos.catalog._cluster_topics import ClusterTopics
from eos.catalog._topic_arguments import TopicGiven, must_exist
from eos.catalog._topic_description import TopicDescription
from eos.cli.cluster import Cluster
from eos.cli.exit_codes import Exit
from eos.cli.reports import Facts, Report, age_s, duration, escape, facts_table
from eos.ids import TopicName


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
        when = "nothing acknowledged" if age is None else f"acknowledged {duration(age)} ago"
        users = "no consumer" if not self.consumers else f"{self.consumers} consuming"
        return f"{self.name}: backlog {self.backlog:,}, {users}, {when}"


class DescribeReport(Report):
    """One topic. ``messages_in``: since its brokers loaded it. Retention -1: no limit."""

    topic: str
    partitions: int
    schema_type: str
    schema_version: int | None
    schema_text: str
    storage_bytes: int
    entries: int
    messages_in: int
    producers: int
    readers: int
    retention_minutes: int
    retention_megabytes: int
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
            ("size", f"{decimal(self.storage_bytes)} in {self.entries:,} entries"),
            ("messages in", f"{self.messages_in:,} since the brokers loaded it"),
            ("producers", str(self.producers)),
            ("readers", str(self.readers)),
            ("retention", kept(Retention(self.retention_minutes, self.retention_megabytes))),
            *(("subscription", one.in_words()) for one in self.subscriptions),
        ]

    def _partition_table(self) -> Table:
        table = Table("partition", "entries", "size")
        for one in self.sizes:
            index = TopicName.parse(one.topic).partition_index
            table.add_row(str(index), f"{one.entries:,}", decimal(one.storage_bytes))
        return table


def kept(retention: Retention) -> str:
    """Return how long messages are kept after all subscriptions have acknowledged them, as text."""
    minutes, megabytes = retention.minutes, retention.megabytes
    if minutes == 0 or megabytes == 0:
        return "messages are deleted after all subscriptions have acknowledged them"
    if minutes < 0 and megabytes < 0:
        return "all messages are kept"
    limits = [duration(minutes * 60)] if minutes > 0 else []
    limits += [f"{megabytes} MB"] if megabytes > 0 else []
    return f"acknowledged messages are kept for {' or '.join(limits)}"


def report_of(description: TopicDescription) -> DescribeReport:
    """Convert a description to a report."""
    stats = description.stats
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
        retention_minutes=description.retention.minutes,
        retention_megabytes=description.retention.megabytes,
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
