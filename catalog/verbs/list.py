"""``eos catalog list``: list namespaces, or the topics of one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer
from rich.console import Console
from rich.filesize import decimal
from rich.table import Table

from eos.admin import AdminClient
from eos.catalog._cluster_topics import ClusterTopics
from eos.catalog._topic_arguments import must_exist, namespace_of
from eos.catalog._topic_description import type_name
from eos.cli.cluster import Cluster
from eos.cli.exit_codes import Exit
from eos.cli.reports import Facts, Report, escape
from eos.client import PulsarClient
from eos.errors import BrokerNotReady, ConfigurationError, TopicNotFound, Unauthorized
from eos.ids import TopicName


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
        found = list(_each(client, cluster.admin(), names, with_sizes=sizes))
    return TopicsReport(namespace=name, topics=found)


def _each(
    client: PulsarClient, admin: AdminClient, names: list[TopicName], *, with_sizes: bool
) -> Iterator[TopicFacts]:
    for name in names:
        try:
            yield _facts(client, admin, name, with_sizes=with_sizes)
        except TopicNotFound:
            continue  # just dropped
        except (Unauthorized, BrokerNotReady) as error:  # of this topic alone
            yield TopicFacts(topic=str(name), error=error.message)


def _facts(
    client: PulsarClient, admin: AdminClient, name: TopicName, *, with_sizes: bool
) -> TopicFacts:
    partitions = client.partition_count(str(name))
    size = None
    if with_sizes:
        size = admin.topic_stats(name, is_partitioned=partitions > 0).storage_bytes
    return TopicFacts(
        topic=str(name),
        partitions=partitions,
        schema_type=type_name(client.schema(str(name))),
        storage_bytes=size,
    )


def _or_dash(number: int | None) -> str:
    return "-" if number is None else str(number)
