"""``eos catalog archive``: the past of topics as a Delta table."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Console
from rich.filesize import decimal
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from eos.catalog._topic_arguments import (
    DefinitionGiven,
    TopicGiven,
    must_exist,
    read_definition,
)
from eos.cli.cluster import Cluster
from eos.cli.reports import Exit, Facts, Report, age_s, duration, escape
from eos.errors import ConfigurationError
from eos.ids import EntryPlace

if TYPE_CHECKING:
    from eos.sources.archive import Archive, ArchivedPart

_POLL_S: Final = 1.0


class PartitionState(Facts):
    """How far a partition is archived. Places are ``ledger:entry``, or ``earliest``.

    ``to``: with ``--dry-run``, up to where it would be archived. ``open_transaction``: where an
    open transaction begins, which ends what can be archived now.
    """

    topic: str
    archived: str
    to: str | None = None
    open_transaction: str | None = None


class ArchiveReport(Report):
    """What one run has added to the table."""

    table: str
    dry_run: bool
    commits: int
    rows: int
    stored_bytes: int
    elapsed_s: float
    partitions: list[PartitionState]

    @property
    def exit(self) -> Exit:
        """Always clean."""
        return Exit.CLEAN

    def render(self, console: Console) -> None:
        """Print a line, and a table of the partitions."""
        if self.dry_run:
            console.print(f"{escape(self.table)} is not changed (--dry-run).", highlight=False)
        else:
            console.print(
                f"[green]Archived[/] {self.rows:,} rows, {decimal(self.stored_bytes)}, in "
                f"{self.commits} commits and {duration(self.elapsed_s)}: {escape(self.table)}",
                highlight=False,
            )
        table = Table(box=None, pad_edge=False)
        for name in ("partition", "archived up to", *(["would go to"] if self.dry_run else [])):
            table.add_column(name, overflow="fold")
        table.add_column("waits for the transaction at", overflow="fold")
        for one in self.partitions:
            to = [one.to or ""] if self.dry_run else []
            cells = (one.topic, one.archived, *to, one.open_transaction or "")
            table.add_row(*map(escape, cells))
        console.print(table, highlight=False)


FolderGiven = Annotated[
    str, typer.Argument(metavar="TABLE", help="Its folder, or s3://bucket/prefix.")
]
PatternGiven = Annotated[
    bool, typer.Option("--pattern", help="TOPIC is a namespace and a regular expression.")
]
SchemaGiven = Annotated[
    str, typer.Option(help="auto: columns by the topic's schema. Or bytes, avro, json, ...")
]
MalformedGiven = Annotated[
    str,
    typer.Option(help="What to do with unreadable values: failfast, permissive, dropmalformed."),
]
UntilGiven = Annotated[
    str | None, typer.Option(metavar="TIME", help="End before messages published then or later.")
]
FollowGiven = Annotated[
    bool, typer.Option("--follow", help="Continue with new messages, until Ctrl-C.")
]
PartMbGiven = Annotated[
    int, typer.Option(min=1, max=4096, help="Rows of a commit, in MB of memory.")
]
FailOnDataLossGiven = Annotated[
    bool, typer.Option(help="End where messages were deleted before they were archived.")
]
DryRunGiven = Annotated[
    bool, typer.Option("--dry-run", help="Show what would be archived; change nothing.")
]


def archive(
    cluster: Cluster,
    topic: TopicGiven,
    table: FolderGiven,
    pattern: PatternGiven = False,
    schema: SchemaGiven = "auto",
    definition: DefinitionGiven = None,
    mode: MalformedGiven = "failfast",
    until: UntilGiven = None,
    follow: FollowGiven = False,
    part_mb: PartMbGiven = 512,
    fail_on_data_loss: FailOnDataLossGiven = True,
    dry_run: DryRunGiven = False,
) -> ArchiveReport:
    """Copy a topic into a Delta table: each message once, in the order of its partition.

    The table has the values' columns, the message's own (`__key`, `__messageId`, ...), and
    `__ledger` and `__entry`. Each commit has rows and places, so a killed run continues where it
    was. It ends before the first open transaction. The subscription eos-archive-... keeps what is
    not archived yet. Needs --service-url.

        eos catalog archive orders /data/orders

        eos catalog archive orders s3://bucket/orders --follow

        eos catalog archive 'public/default/orders-.*' /data/orders --pattern

    Exit codes: 0 archived; 1 refused, messages were lost, or a value does not fit; 2 something
    could not be reached; 64 wrong options, or no such topic.
    """
    # Lazy: other verbs need no deltalake.
    from eos.sources.archive import Archive

    if follow and (until is not None or dry_run):
        raise ConfigurationError(
            "--follow has no end.", hint="Leave out --until, --dry-run or --follow."
        )
    options = _of_cluster(cluster) | {
        "topics_pattern" if pattern else "topic": topic,
        "schema": schema,
        "mode": mode,
        "fail_on_data_loss": str(fail_on_data_loss),
    }
    if definition is not None:
        options["schema_definition"] = read_definition(definition)
    if until is not None:
        options["ending_time"] = until
    folder = table if "://" in table else str(Path(table).expanduser().resolve())
    part_bytes = part_mb * 10**6
    with (
        must_exist(f"topic {topic}"),
        Archive(options, folder, auth=cluster.auth, part_bytes=part_bytes) as one,
    ):
        return _planned(one) if dry_run else _archived(one, follow, is_shown=not cluster.as_json)


def _of_cluster(cluster: Cluster) -> dict[str, str]:
    given = {
        "service_url": cluster.service_url_of(),
        "admin_url": cluster.admin_url,
        "listener_name": cluster.rules.listener_name,
        "subscription_prefix": cluster.rules.subscription_prefix,
        "request_timeout_s": str(cluster.timeout_s),
    }
    return {name: value for name, value in given.items() if value is not None}


def _planned(one: Archive) -> ArchiveReport:
    one.limit()
    return _report(one, ends=one.plan())


def _archived(one: Archive, follow: bool, *, is_shown: bool) -> ArchiveReport:
    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    commits, began = [], time.monotonic()
    if not follow:
        one.limit()
    with (
        # With --follow the user ends it.
        suppress(KeyboardInterrupt) if follow else nullcontext(),
        Progress(*columns, console=console, transient=True, disable=not is_shown) as progress,
    ):
        shown = progress.add_task("reading")
        while True:
            added = one.add()
            if added is not None:
                commits.append(added)
                progress.update(shown, description=_state(commits, time.monotonic() - began))
            elif follow:
                time.sleep(_POLL_S)
            else:
                break
    return _report(one, commits, time.monotonic() - began)


def _state(commits: Sequence[ArchivedPart], elapsed_s: float) -> str:
    rows, stored = sum(one.rows for one in commits), sum(one.bytes for one in commits)
    newest = commits[-1].newest
    behind = "" if newest is None else f", behind by {duration(age_s(newest))}"
    return f"{rows:,} rows, {decimal(stored)}, {decimal(int(stored / elapsed_s))}/s{behind}"


def _report(
    one: Archive,
    commits: Sequence[ArchivedPart] = (),
    elapsed_s: float = 0.0,
    *,
    ends: Mapping[str, EntryPlace | None] | None = None,
) -> ArchiveReport:
    blocked = one.blocked()
    partitions = [
        PartitionState(
            topic=name,
            archived=_text(place),
            to=None if ends is None else _text(ends[name]),
            open_transaction=_text(blocked[name]) if name in blocked else None,
        )
        for name, place in one.places().items()
    ]
    return ArchiveReport(
        table=one.table.folder.uri,
        dry_run=ends is not None,
        commits=len(commits),
        rows=sum(part.rows for part in commits),
        stored_bytes=sum(part.bytes for part in commits),
        elapsed_s=round(elapsed_s, 3),
        partitions=partitions,
    )


def _text(place: EntryPlace | None) -> str:
    return "earliest" if place is None else f"{place[0]}:{place[1]}"
