"""``eos catalog archive``: the past of topics as a Delta table."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Console
from rich.filesize import decimal
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from eos.catalog._topic_arguments import (
    DefinitionGiven,
    TopicGiven,
    folder_of,
    must_exist,
    read_definition,
)
from eos.cli.cluster import Cluster
from eos.cli.commands import warnings_shown
from eos.cli.reports import Exit, Facts, Report, age_s, counted, duration, escape, new_console
from eos.errors import ConfigurationError, ConsumerBusy, EosError, Indeterminate, Retriable
from eos.ids import EntryPlace

if TYPE_CHECKING:
    from eos.sources.archive import Archive, ArchivedPart, PlannedPart

_POLL_S: Final = 1.0
_PAUSE_S: Final = 5.0  # After an error that passes.


class PartitionState(Facts):
    """How far a partition is archived. Places are ``ledger:entry``, or ``earliest``.

    ``to``: with ``--dry-run``, up to where it would be archived; ``entries`` and ``stored_bytes``
    are about what the broker has there, if ``--admin-url`` is named. ``open_transaction``: where an
    open transaction begins, which ends what can be archived now.
    """

    topic: str
    archived: str
    to: str | None = None
    entries: int | None = None
    stored_bytes: int | None = None
    open_transaction: str | None = None


class ArchiveReport(Report):
    """What one run has added to the table. ``trimmed``: the broker may delete it."""

    table: str
    dry_run: bool
    trimmed: bool = False
    commits: int = 0
    rows: int = 0
    stored_bytes: int = 0
    elapsed_s: float = 0.0
    partitions: list[PartitionState]
    warnings: list[str]  # also of losses, and of values that were left out

    @property
    def exit(self) -> Exit:
        """Always clean."""
        return Exit.CLEAN

    def render(self, console: Console) -> None:
        """Print a line, and a table of the partitions."""
        if self.dry_run:
            console.print(f"{escape(self.table)} is not changed (--dry-run).", highlight=False)
        else:
            found = f"{counted(self.rows, 'row')}, {decimal(self.stored_bytes)}"
            took = f"{counted(self.commits, 'commit')} and {duration(self.elapsed_s)}"
            text = f"[green]Archived[/] {found}, in {took}: {escape(self.table)}"
            console.print(text, highlight=False)
        if self.trimmed:
            console.print(
                "The broker may delete it from the topic. It keeps what retention and other "
                "subscriptions keep, and each partition's newest ledger.",
                highlight=False,
            )
        table = Table(box=None, pad_edge=False)
        planned = ("would go to", "entries", "stored there") if self.dry_run else ()
        for name in ("partition", "archived up to", *planned, "waits for the transaction at"):
            table.add_column(name, overflow="fold")
        for one in self.partitions:
            size = "?" if one.stored_bytes is None else decimal(one.stored_bytes)
            entries = "?" if one.entries is None else f"{one.entries:,}"
            to = (one.to or "", entries, size) if self.dry_run else ()
            cells = (one.topic, one.archived, *to, one.open_transaction or "")
            table.add_row(*map(escape, cells))
        console.print(table, highlight=False)


class ArchiveProblem(Facts):
    """See ``eos.sources._archive_check.Problem``."""

    what: str
    hint: str
    is_urgent: bool


class ArchiveCheckReport(Report):
    """What is wrong with an archive."""

    table: str
    problems: list[ArchiveProblem]

    @property
    def exit(self) -> Exit:
        """Whether something has to be done."""
        is_urgent = any(one.is_urgent for one in self.problems)
        return Exit.NEEDS_ACTION if is_urgent else Exit.CLEAN

    def render(self, console: Console) -> None:
        """Print each problem and its way out."""
        if not self.problems:
            console.print(f"{escape(self.table)}: [green]nothing is wrong[/].", highlight=False)
        for one in self.problems:
            color = "red" if one.is_urgent else "yellow"
            text = f"[{color}]{escape(one.what)}[/]\n  {escape(one.hint)}"
            console.print(text, highlight=False, soft_wrap=True)


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
TrimGiven = Annotated[
    bool,
    typer.Option(
        "--trim", help="Then let the broker delete it, unless others keep it. Needs --admin-url."
    ),
]
CheckGiven = Annotated[
    bool, typer.Option("--check", help="Show what is wrong with table and topic; change nothing.")
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
    trim: TrimGiven = False,
    check: CheckGiven = False,
    dry_run: DryRunGiven = False,
) -> ArchiveReport | ArchiveCheckReport:
    """Copy a topic into a Delta table: each message once, in the order of its partition.

    The table has the values' columns, the message's own (`__key`, ...), `__ledger` and `__entry`.
    Each commit has rows and places, so a killed run continues where it was. It ends before the
    first open transaction. A subscription keeps what is not archived yet. Needs --service-url.

        eos catalog archive orders /data/orders

        eos catalog archive orders s3://bucket/orders --follow

        eos catalog archive 'public/default/orders-.*' /data/orders --pattern

    Exit codes: 0 archived; 1 refused, messages were lost, a value does not fit, or --check found
    something to do; 2 something could not be reached; 64 wrong options, topic or table.
    """
    # Lazy: other verbs need no deltalake.
    from eos.sources.archive import Archive

    is_dry = dry_run or check
    if dry_run and check:
        raise ConfigurationError("--dry-run and --check exclude each other.")
    _check(cluster, table, follow=follow, until=until, trim=trim, is_dry=is_dry)
    options = _of_cluster(cluster) | {
        "topics_pattern" if pattern else "topic": topic,
        "schema": schema,
        "mode": mode,
        "fail_on_data_loss": str(fail_on_data_loss),
        **({} if definition is None else {"schema_definition": read_definition(definition)}),
        **({} if until is None else {"ending_time": until}),
    }
    folder = folder_of(table)

    def opened() -> Archive:
        return Archive(options, folder, auth=cluster.auth, part_bytes=part_mb * 10**6)

    with must_exist(f"topic {topic}"), in_own_words():
        if is_dry:
            with opened() as one:
                return _checked(one) if check else _planned(one)
        run = _Run(trim=trim, is_shown=not cluster.as_json)
        with run.progress:
            (run.forever if follow else run.to_end)(opened)
        with opened() as one:
            return run.report(one)


def _check(
    cluster: Cluster, table: str, *, follow: bool, until: str | None, trim: bool, is_dry: bool
) -> None:
    if not table.strip():
        raise ConfigurationError("TABLE is empty.", hint="Name the table's folder.")
    if follow and (until is not None or is_dry):
        raise ConfigurationError(
            "--follow has no end.", hint="Leave it out, or --until, --dry-run and --check."
        )
    if trim and is_dry:
        raise ConfigurationError("--trim changes the topic; --dry-run and --check change nothing.")
    if trim and cluster.admin_url is None:
        raise ConfigurationError("--trim uses the admin API.", hint="Name its --admin-url.")


# The archive reads with the options of `format("pulsar")`, and so its errors name them.
_OWN_WORDS: Final = {
    "failOnDataLoss=false": "--no-fail-on-data-loss",
    "allowDifferentTopicSchemas=true to read bytes": "--schema bytes",
    'schema="avro" or "json"': "--schema avro or --schema json",
    "schemaDefinition": "--definition",
    'schema="bytes"': "--schema bytes",
    "mode=": "--mode ",
    "endingTime": "--until",
    "Cast the columns to the table's types, or drop them": "Archive into another table",
    "Read them without metadata; or read": "Read",
}


@contextmanager
def in_own_words() -> Iterator[None]:
    """Let errors of the source name options of this command."""
    try:
        yield
    except EosError as error:
        error.message, error.hint = _own(error.message), _own(error.hint)
        raise


def _own(text: str) -> str:
    for option, own in _OWN_WORDS.items():
        text = text.replace(option, own)
    return text


def _of_cluster(cluster: Cluster) -> dict[str, str]:
    given = {
        "service_url": cluster.service_url_of(),
        "admin_url": cluster.admin_url,
        "key_location": None if cluster.encryption is None else cluster.encryption.key_location,
        "listener_name": cluster.rules.listener_name,
        "subscription_prefix": cluster.rules.subscription_prefix,
        "request_timeout_s": str(cluster.timeout_s),
    }
    return {name: value for name, value in given.items() if value is not None}


class _Run:
    """One call of the verb that adds to the table, with its progress."""

    def __init__(self, *, trim: bool, is_shown: bool) -> None:
        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        console = new_console(stderr=True)
        self.progress = Progress(*columns, console=console, transient=True, disable=not is_shown)
        self._shown = self.progress.add_task("reading")
        self._trim = trim
        self._is_trimmed = False
        self._began = time.monotonic()
        self._commits: list[ArchivedPart] = []

    def to_end(self, opened: Callable[[], Archive]) -> None:
        """Archive the messages that exist now."""
        with opened() as one:
            one.limit()
            while self._add(one):
                pass
            if self._trim:
                self._is_trimmed = one.trim()

    def forever(self, opened: Callable[[], Archive]) -> None:
        """Archive until an error that does not pass, or until the user's Ctrl-C."""
        with suppress(KeyboardInterrupt):
            while True:
                try:
                    self._follow(opened)
                except (Retriable, Indeterminate) as error:
                    # At its beginning: another archive of the table.
                    if isinstance(error, ConsumerBusy) and not self._commits:
                        raise
                    text = f"[yellow]Again in {_PAUSE_S:.0f} s:[/] {escape(error.message)}"
                    self.progress.console.print(text)
                    time.sleep(_PAUSE_S)

    def _follow(self, opened: Callable[[], Archive]) -> None:
        with opened() as one:
            while True:
                if not self._add(one):
                    time.sleep(_POLL_S)
                elif self._trim:
                    self._is_trimmed = one.trim()

    def _add(self, one: Archive) -> bool:
        added = one.add()
        if added is None:
            return False
        self._commits.append(added)
        self.progress.update(self._shown, description=self._state())
        return True

    def _state(self) -> str:
        (rows, stored), newest = self._sums(), self._commits[-1].newest
        per_s = decimal(int(stored / (time.monotonic() - self._began)))
        behind = "" if newest is None else f", behind by {duration(age_s(newest))}"
        return f"{counted(rows, 'row')}, {decimal(stored)}, {per_s}/s{behind}"

    def _sums(self) -> tuple[int, int]:
        return sum(one.rows for one in self._commits), sum(one.bytes for one in self._commits)

    def report(self, one: Archive) -> ArchiveReport:
        """Return what was added, and where the archive is now."""
        rows, stored = self._sums()
        return ArchiveReport(
            table=one.table.folder.uri,
            dry_run=False,
            trimmed=self._is_trimmed,
            commits=len(self._commits),
            rows=rows,
            stored_bytes=stored,
            elapsed_s=round(time.monotonic() - self._began, 3),
            partitions=_partitions(one),
            warnings=[_own(text) for text in warnings_shown()],
        )


def _planned(one: Archive) -> ArchiveReport:
    one.limit()
    return ArchiveReport(
        table=one.table.folder.uri,
        dry_run=True,
        partitions=_partitions(one, one.plan()),
        warnings=[_own(text) for text in warnings_shown()],
    )


def _checked(one: Archive) -> ArchiveCheckReport:
    problems = [
        ArchiveProblem(what=_own(what), hint=_own(hint), is_urgent=is_urgent)
        for what, hint, is_urgent in one.check()
    ]
    return ArchiveCheckReport(table=one.table.folder.uri, problems=problems)


def _partitions(
    one: Archive, plan: Mapping[str, PlannedPart] | None = None
) -> list[PartitionState]:
    blocked = one.blocked()
    return [
        PartitionState(
            topic=name,
            archived=_text(place),
            to=None if plan is None else _text(plan[name].end),
            entries=None if plan is None else plan[name].entries,
            stored_bytes=None if plan is None else plan[name].stored_bytes,
            open_transaction=_text(blocked[name]) if name in blocked else None,
        )
        for name, place in one.places().items()
    ]


def _text(place: EntryPlace | None) -> str:
    return "earliest" if place is None else f"{place[0]}:{place[1]}"
