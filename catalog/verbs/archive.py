"""``eos catalog archive``: the past of topics as a Delta table."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Console
from rich.filesize import decimal
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from eos.catalog._topic_arguments import TopicGiven, must_exist
from eos.cli.cluster import Cluster
from eos.cli.reports import Exit, Facts, Report, age_s, duration, escape
from eos.errors import ConfigurationError
from eos.ids import EntryPlace
from eos.sources._offsets import place_text
from eos.sources._value_format import Mode

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


def archive(
    cluster: Cluster,
    topic: TopicGiven,
    table: Annotated[str, typer.Argument(help="Its folder, or s3://bucket/prefix.")],
    pattern: Annotated[
        bool, typer.Option("--pattern", help="TOPIC is a namespace and a regular expression.")
    ] = False,
    schema: Annotated[
        str, typer.Option(help="auto: columns by the topic's schema. Or bytes, avro, json, ...")
    ] = "auto",
    definition: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            readable=True,
            metavar="FILE.avsc",
            help="A record in Avro's JSON, for avro and json.",
        ),
    ] = None,
    mode: Annotated[
        Mode, typer.Option(help="What to do with values that can't be read.")
    ] = Mode.FAILFAST,
    until: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="End before messages published then or later."),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on with new messages, until Ctrl-C.")
    ] = False,
    part_mb: Annotated[
        int, typer.Option(min=1, max=4096, help="Rows of a commit, in MB of memory.")
    ] = 512,
    fail_on_data_loss: Annotated[
        bool, typer.Option(help="End where messages were deleted before they were archived.")
    ] = True,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be archived; change nothing.")
    ] = False,
) -> ArchiveReport:
    """Copy a topic into a Delta table: each message once, in the order of its partition.

    The table has the values' columns, the message's own (`__key`, `__messageId`, ...), and
    `__ledger` and `__entry`. Each commit has rows and places, so a run that is killed goes on where
    it was. It ends before the first open transaction. The subscription eos-archive-... keeps what
    is not archived yet. Needs --service-url.

        eos catalog archive orders /data/orders

        eos catalog archive orders s3://bucket/orders --follow

        eos catalog archive 'public/default/orders-.*' /data/orders --pattern

    Exit codes: 0 archived; 1 refused, messages were lost, or a value does not fit; 2 something
    could not be reached; 64 wrong options, or no such topic.
    """
    # Lazy: other verbs need no deltalake.
    from eos.sources._source_options import SourceOptions
    from eos.sources.archive import Archive

    if follow and (until is not None or dry_run):
        raise ConfigurationError(
            "--follow has no end.", hint="Leave out --until, --dry-run or --follow."
        )
    given = {
        "service_url": cluster.service_url_of(),
        "topics_pattern" if pattern else "topic": topic,
        "schema": schema,
        "mode": mode.value,
        "fail_on_data_loss": str(fail_on_data_loss),
        "request_timeout_s": str(cluster.timeout_s),
    }
    if definition is not None:
        given["schema_definition"] = definition.read_text(encoding="utf-8")
    for name, value in (
        ("ending_time", until),
        ("admin_url", cluster.admin_url),
        ("listener_name", cluster.rules.listener_name),
        ("subscription_prefix", cluster.rules.subscription_prefix),
    ):
        if value is not None:
            given[name] = value
    options = SourceOptions.parse(given, cluster.auth)
    folder = table if "://" in table else str(Path(table).expanduser().resolve())
    with must_exist(f"topic {topic}"), Archive(options, folder, part_bytes=part_mb * 10**6) as one:
        if dry_run:
            return _planned(one)
        return _archived(one, follow=follow, is_shown=not cluster.as_json)


def _planned(one: Archive) -> ArchiveReport:
    one.limit()
    places, spans, blocked = one.places(), one.plan().spans, one.blocked()
    states = [
        PartitionState(
            topic=name,
            archived=place_text(place),
            to=place_text(spans[name].end),
            open_transaction=_text(blocked.get(name)),
        )
        for name, place in places.items()
    ]
    return _report(one, states, is_dry=True)


def _archived(one: Archive, *, follow: bool, is_shown: bool) -> ArchiveReport:
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
    elapsed_s = round(time.monotonic() - began, 3)
    blocked = one.blocked()
    states = [
        PartitionState(
            topic=name, archived=place_text(place), open_transaction=_text(blocked.get(name))
        )
        for name, place in one.places().items()
    ]
    return _report(one, states, commits, elapsed_s)


def _state(commits: Sequence[ArchivedPart], elapsed_s: float) -> str:
    rows, stored = sum(one.rows for one in commits), sum(one.bytes for one in commits)
    newest = commits[-1].newest
    behind = "" if newest is None else f", behind by {duration(age_s(newest))}"
    return f"{rows:,} rows, {decimal(stored)}, {decimal(int(stored / elapsed_s))}/s{behind}"


def _text(place: EntryPlace | None) -> str | None:
    return None if place is None else place_text(place)


def _report(
    one: Archive,
    partitions: list[PartitionState],
    commits: Sequence[ArchivedPart] = (),
    elapsed_s: float = 0.0,
    *,
    is_dry: bool = False,
) -> ArchiveReport:
    return ArchiveReport(
        table=one.table.folder.uri,
        dry_run=is_dry,
        commits=len(commits),
        rows=sum(one.rows for one in commits),
        stored_bytes=sum(one.bytes for one in commits),
        elapsed_s=elapsed_s,
        partitions=partitions,
    )
