"""``eos catalog drop``: delete a topic, after its full name was confirmed."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.filesize import decimal

from eos.catalog._cluster_topics import ClusterTopics, check_droppable
from eos.catalog._topic_arguments import TopicGiven, must_exist
from eos.catalog._topic_description import TopicDescription
from eos.cli.cluster import Cluster
from eos.cli.exit_codes import Exit
from eos.cli.reports import Report, escape, facts_table
from eos.errors import ConfigurationError
from eos.ids import TopicName


class DropReport(Report):
    """The deleted topic."""

    topic: str
    partitions: int
    entries: int
    storage_bytes: int
    subscriptions: list[str]

    @property
    def exit(self) -> Exit:
        """Always clean."""
        return Exit.CLEAN

    def render(self, console: Console) -> None:
        """Print one line."""
        console.print(
            f"[green]Dropped[/] {escape(self.topic)}: {self.entries:,} entries, "
            f"{decimal(self.storage_bytes)}.",
            highlight=False,
        )


def drop(
    cluster: Cluster,
    topic: TopicGiven,
    confirm: Annotated[
        str | None,
        typer.Option(metavar="FULL_NAME", help="persistent://...: don't ask; for scripts."),
    ] = None,
) -> DropReport:
    """Delete a topic with all its messages and subscriptions, for all users.

    Shows the topic, and asks for its full name. A topic in use is not deleted. Needs --service-url
    and --admin-url.

        eos catalog drop orders

        eos catalog drop orders --confirm persistent://public/default/orders

    Exit codes: 0 dropped; 1 refused: it is in use; 2 something could not be reached; 64 wrong
    options, another name was typed, or no such topic.
    """
    name = TopicName.parse(topic)
    topics = ClusterTopics(cluster.admin(), cluster.client)
    with must_exist(f"topic {name}"):
        description = topics.describe(name)
        check_droppable(name, description.stats)
        typed = _ask(cluster, description) if confirm is None else confirm
        topics.drop(name, confirm=typed)
    return DropReport(
        topic=str(name),
        partitions=description.partitions,
        entries=sum(one.entries for one in description.sizes),
        storage_bytes=description.stats.storage_bytes,
        subscriptions=[one.name for one in description.stats.subscriptions],
    )


def _ask(cluster: Cluster, description: TopicDescription) -> str:
    """Show the topic, and return the name that the user types.

    Raises:
        ConfigurationError: there is no terminal.
        Abort: Ctrl-C, or the end of the input.
    """
    console = Console(stderr=True)
    topic = description.topic
    console.print(f"This deletes [bold]{escape(topic)}[/], for all users:", highlight=False)
    console.print(facts_table(_losses(description)), highlight=False)
    if cluster.as_json or not sys.stdin.isatty():
        raise ConfigurationError(
            "drop asks for the topic's name, but there is no terminal.",
            hint=f"Nothing was deleted. In scripts, pass --confirm {topic}",
        )
    typed: str = typer.prompt("Type its full name to delete it", err=True)
    return typed.strip()


def _losses(description: TopicDescription) -> list[tuple[str, str]]:
    entries = sum(one.entries for one in description.sizes)
    subscriptions = [
        ("subscription", f"{one.name}, with {one.backlog:,} unacknowledged messages")
        for one in description.stats.subscriptions
    ]
    return [
        ("partitions", str(description.partitions or "none: it is not partitioned")),
        ("messages", f"{decimal(description.stats.storage_bytes)} in {entries:,} entries"),
        *(subscriptions or [("subscriptions", "none")]),
    ]
