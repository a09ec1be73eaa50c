"""``eos catalog drop``: a topic is deleted, when somebody has said its full name."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.filesize import decimal

from eos.catalog._describe import TopicDescription
from eos.catalog._names_given import TopicGiven, must_exist
from eos.catalog._topics import ClusterTopics, check_droppable
from eos.cli.cluster import Cluster
from eos.cli.exit_codes import Exit
from eos.cli.reports import Report, escape, facts_table
from eos.errors import ConfigurationError
from eos.ids import TopicName


class DropReport(Report):
    """What was deleted."""

    topic: str
    partitions: int
    entries: int
    storage_bytes: int
    subscriptions: list[str]

    @property
    def exit(self) -> Exit:
        """It is gone."""
        return Exit.CLEAN

    def render(self, console: Console) -> None:
        """One line."""
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
        typer.Option(metavar="FULL_NAME", help="persistent://...: do not ask; for scripts."),
    ] = None,
) -> DropReport:
    """Delete a topic with all its messages and subscriptions, for everybody.

    Shows what would be deleted, and asks for the topic's full name. A topic that somebody uses is
    left alone. Needs --service-url and --admin-url.

        eos catalog drop orders

        eos catalog drop orders --confirm persistent://public/default/orders

    Exit codes: 0 dropped; 1 refused: it is in use; 2 something could not be reached; 64 wrong
    options, another name was typed, or no such topic.
    """
    name = TopicName.parse(topic)
    topics = ClusterTopics(cluster.admin(), cluster.client)
    with must_exist(f"topic {name}"):
        told = topics.describe(name)
        check_droppable(name, told.stats)
        typed = _asked(cluster, told) if confirm is None else confirm
        topics.drop(name, confirm=typed)
    return DropReport(
        topic=str(name),
        partitions=told.partitions,
        entries=sum(one.entries for one in told.sizes),
        storage_bytes=told.stats.storage_bytes,
        subscriptions=[one.name for one in told.stats.subscriptions],
    )


def _asked(cluster: Cluster, told: TopicDescription) -> str:
    """The name that a person types who has seen what it is about.

    Raises:
        ConfigurationError: nobody is there to be asked.
        Abort: Ctrl-C, or the end of the input.
    """
    console = Console(stderr=True)
    console.print(f"This deletes [bold]{escape(told.topic)}[/], for everybody:", highlight=False)
    console.print(facts_table(_losses(told)), highlight=False)
    if cluster.as_json or not sys.stdin.isatty():
        raise ConfigurationError(
            "drop asks for the topic's name, and there is no terminal to ask on.",
            hint=f"Nothing was deleted. For scripts: --confirm {told.topic}",
        )
    typed: str = typer.prompt("Type its full name to delete it", err=True)
    return typed.strip()


def _losses(told: TopicDescription) -> list[tuple[str, str]]:
    entries = sum(one.entries for one in told.sizes)
    subscriptions = [
        ("subscription", f"{one.name}, which has {one.backlog:,} messages to acknowledge")
        for one in told.stats.subscriptions
    ]
    return [
        ("partitions", str(told.partitions or "none: it is not partitioned")),
        ("messages", f"{decimal(told.stats.storage_bytes)} in {entries:,} entries"),
        *(subscriptions or [("subscriptions", "none")]),
    ]
