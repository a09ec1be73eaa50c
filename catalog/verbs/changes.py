"""``eos catalog create`` and ``drop``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.filesize import decimal

from eos.catalog._cluster_topics import ClusterTopics, TopicDescription, check_droppable, new_schema
from eos.catalog._topic_arguments import (
    DefinitionGiven,
    TopicGiven,
    must_exist,
    read_definition,
)
from eos.cli.cluster import Cluster
from eos.cli.reports import Exit, Report, counted, escape, facts_table, new_console
from eos.errors import ConfigurationError
from eos.ids import MAX_PARTITIONS, TopicName
from eos.schemas import PRIMITIVE_NAMES, AvroSchema, JsonSchema, Schema

_OF_A_DEFINITION: Final = {"avro": AvroSchema, "json": JsonSchema}
_NAMES: Final = ("bytes", *(one for one in PRIMITIVE_NAMES if one != "bytes"), *_OF_A_DEFINITION)


class CreateReport(Report):
    """The created topic."""

    topic: str
    partitions: int
    schema_type: str

    @property
    def exit(self) -> Exit:
        """Always clean."""
        return Exit.CLEAN

    def render(self, console: Console) -> None:
        """Print one line."""
        parts = counted(self.partitions, "partition") if self.partitions else "not partitioned"
        console.print(
            f"[green]Created[/] {escape(self.topic)}: {parts}, schema {self.schema_type}.",
            highlight=False,
        )


def create(
    cluster: Cluster,
    topic: TopicGiven,
    partitions: Annotated[
        int, typer.Option(min=0, max=MAX_PARTITIONS, help="0: a topic that is not partitioned.")
    ] = 0,
    schema: Annotated[
        str, typer.Option(help=f"One of {', '.join(_NAMES)}. bytes: nothing is registered.")
    ] = "bytes",
    definition: DefinitionGiven = None,
) -> CreateReport:
    """Create a topic, and register its schema.

    An existing topic is not changed. For a schema of columns ("id BIGINT, name STRING"), which
    needs Spark's parser, use `PulsarCatalog.create`. The first producer registers a Protobuf
    schema. Needs --service-url and --admin-url.

        eos catalog create orders --partitions 4 --schema avro --definition orders.avsc

        eos catalog create public/default/names --schema string

    Exit codes: 0 created; 1 the broker refuses; 2 something could not be reached; 64 wrong options,
    or the topic already exists.
    """
    name = TopicName.parse(topic)
    if name.partition_index is not None:
        raise ConfigurationError(
            f"{name} is the name of a partition.",
            hint=f"Create {name.base} --partitions N.",
        )
    info = new_schema(_schema(schema, definition), None)
    with must_exist(f"namespace {name.namespace_name}"):
        ClusterTopics(cluster.admin(), cluster.client).create(name, partitions, info)
    return CreateReport(topic=str(name), partitions=partitions, schema_type=schema)


def _schema(name: str, definition: Path | None) -> Schema | str:
    if name not in _NAMES:
        raise ConfigurationError(
            f"--schema {name[:100]!r} can't be registered here.",
            hint=f"Choose one of {', '.join(_NAMES)}.",
        )
    make = _OF_A_DEFINITION.get(name)
    if make is None:
        if definition is not None:
            raise ConfigurationError(
                f"--schema {name} takes no --definition; only avro and json do."
            )
        return name
    if definition is None:
        raise ConfigurationError(
            f"--schema {name} needs a definition.",
            hint="Pass --definition FILE.avsc, a record in Avro's JSON.",
        )
    return make(read_definition(definition))


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
            f"[green]Dropped[/] {escape(self.topic)}: {counted(self.entries, 'entry')}, "
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
        # Checked before the user is asked for the name.
        check_droppable(name, description.stats)
        typed = _ask(cluster, description) if confirm is None else confirm
        # As typed, or given by --confirm: any name but the full one is refused.
        topics.drop(name, confirm=typed)
    return DropReport(
        topic=str(name),
        partitions=description.partitions,
        entries=sum(one.entries for one in description.sizes),
        storage_bytes=description.stats.storage_bytes,
        subscriptions=[one.name for one in description.stats.subscriptions],
    )


def _ask(cluster: Cluster, description: TopicDescription) -> str:
    # Shows the topic, and returns the name that the user types; Abort: Ctrl-C, or the end of the
    # input.
    console = new_console(stderr=True)
    topic = description.topic
    console.print(f"This deletes [bold]{escape(topic)}[/], for all users:", highlight=False)
    console.print(facts_table(_losses(description)), highlight=False)
    # A missing answer is not a yes: a script must pass --confirm.
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
        ("subscription", f"{one.name}, with {counted(one.backlog, 'unacknowledged message')}")
        for one in description.stats.subscriptions
    ]
    return [
        ("partitions", str(description.partitions or "none: it is not partitioned")),
        ("messages", f"{decimal(description.stats.storage_bytes)} in {counted(entries, 'entry')}"),
        *(subscriptions or [("subscriptions", "none")]),
    ]
