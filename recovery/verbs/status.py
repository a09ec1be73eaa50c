"""``eos recovery status``: the state of every sink and query."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable
from typing import Annotated, Generic, NoReturn, TypeVar

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from eos.cli.commands import VerbExit
from eos.cli.reports import (
    Exit,
    Report,
    ago,
    duration,
    error_json,
    escape,
    facts_table,
    new_console,
    now,
    table_of,
    worst,
)
from eos.errors import EosError, printable
from eos.protocol import BATCH
from eos.recovery._sink_view import (
    QueryProgress,
    SinkView,
    Unfinished,
    epoch_label,
    query_label,
    render_unwritten,
)
from eos.recovery._survey import Survey, survey
from eos.recovery._target import Target


class StatusReport(Survey, Report):
    """The state of all sinks below a root."""

    grace_s: float

    @property
    def exit(self) -> Exit:
        """Epochs unfinished or not written for longer than the grace, and broken logs, need
        action."""
        # By the newest record of an epoch: a running driver may still finish a young one.
        ages = [
            *(one.written_age_s for sink in self.sinks for one in sink.unfinished),
            *(one.written_age_s for sink in self.sinks for one in sink.owing),
        ]
        # The age is below zero if the driver's clock is ahead: it is then unknown by as much.
        late = any(abs(age) >= self.grace_s for age in ages)
        return worst(Exit.NEEDS_ACTION if late else Exit.CLEAN, self.seen)

    def render(self, console: Console) -> None:
        """A paragraph for each sink, then one for each epoch that needs attention."""
        console.print(f"Commit logs below {escape(self.commit_log)}")
        for sink in self.sinks:
            console.print(f"\n[bold]{escape(sink.sink_id)}[/]: {escape(sink.meaning)}")
            console.print(facts_table(_rows(sink)))
        for lost in self.broken:
            console.print(f"\n[bold]{escape(lost.sink_id)}[/]: [red]can't be read[/]")
            console.print(facts_table([("error", lost.error)]))
        if any(sink.unfinished or sink.owing or sink.decided for sink in self.sinks):
            console.print()
        for sink in self.sinks:
            for one in sink.unfinished:
                _render_unfinished(console, sink.sink_id, one)
            render_unwritten(console, sink.sink_id, sink.owing)
            for decided in sink.decided:
                console.print(
                    f"[bold]{escape(sink.sink_id)}[/], {epoch_label(decided)}: "
                    f"{decided.state.value}, decided by a person. {escape(decided.reason)}"
                )
        for problem in self.problems:
            console.print(f"[yellow]Unknown:[/] {escape(problem)}")


def _rows(sink: SinkView) -> list[tuple[str, str]]:
    rows = []
    # A query without a finished epoch is listed too, with its unfinished one.
    for progress in sink.progress:
        mine = [one for one in sink.unfinished if one.query_id == progress.query_id]
        last = "no epoch finished yet"
        if progress.epoch is not None:
            last = f"last committed {progress.epoch}, {ago(progress.age_s)}"
        waiting = ", ".join(f"{one.epoch} {one.state.value}" for one in mine)
        owing = ", ".join(o.epoch for o in sink.owing if o.query_id == progress.query_id)
        label = query_label(progress.query_id)
        name = "batch jobs" if label == BATCH else f"query {label}"
        rest = [
            f"unfinished: {waiting}" if waiting else "",
            f"not written: {owing}" if owing else "",
        ]
        rows.append((name, "; ".join(filter(None, (last, *rest)))))
    if sink.topics:
        *before, topic = sink.topics
        rows.append(("topic", f"{topic}; before: {', '.join(before)}" if before else topic))
    if sink.claim:
        rows.append(("claim", f"run {sink.claim.run_id[:8]}, {ago(sink.claim.age_s)}"))
    return rows


def _table(report: StatusReport) -> Table:
    table = table_of("sink", "query", "last committed", "unfinished", "not written", "claim")
    for sink in report.sinks:
        claim = f"{sink.claim.run_id[:8]}, {ago(sink.claim.age_s)}" if sink.claim else "-"
        queries: list[QueryProgress | None] = [*sink.progress]
        for progress in queries or [None]:
            query_id = progress.query_id if progress else None
            last = "-"
            if progress and progress.epoch is not None:
                last = f"{progress.epoch}, {ago(progress.age_s)}"
            waiting = [
                f"{one.epoch} {one.state.value}, {duration(one.age_s)}"
                for one in sink.unfinished
                if one.query_id == query_id
            ]
            owing = [one.epoch for one in sink.owing if one.query_id == query_id]
            cells = [
                sink.sink_id,
                query_label(query_id) if query_id else "-",
                last,
                "\n".join(waiting),
                ", ".join(owing),
                claim,
            ]
            table.add_row(*map(escape, cells), style="yellow" if waiting or owing else None)
    for lost in report.broken:
        table.add_row(escape(lost.sink_id), escape(lost.error), style="red")
    for problem in report.problems:
        table.add_row("-", escape(problem), style="yellow")
    return table


def _render_unfinished(console: Console, sink_id: str, one: Unfinished) -> None:
    left = ""
    if one.ttl_left_s is not None:
        is_over = one.ttl_left_s < 0
        left = ", expired" if is_over else f", expires in {duration(one.ttl_left_s)}"
    at_broker = f"; at the broker: {one.at_broker}" if one.at_broker else ""
    console.print(
        f"[bold]{escape(sink_id)}[/], {epoch_label(one)}: [yellow]{one.state.value}[/], attempt "
        f"{one.attempt}, {escape(one.what)}, opened {ago(one.age_s)}{left}"
        f"{escape(at_broker)}.\n   {escape(one.meaning)}."
    )


def status(
    target: Target,
    sink: Annotated[str | None, typer.Argument(help="Only this sink; all by default.")] = None,
    grace_s: Annotated[
        float,
        typer.Option(
            min=0,
            help="Report an unfinished epoch as clean while its newest record is younger than this "
            "many seconds. For monitoring running queries. With 0, every unfinished epoch needs "
            "action.",
        ),
    ] = 0.0,
    watch: Annotated[
        bool,
        typer.Option(
            "--watch",
            help="Show a table and refresh it until Ctrl-C. With --json, one line each time.",
        ),
    ] = False,
    every_s: Annotated[
        float, typer.Option(min=0.1, max=86_400, help="Seconds between refreshes of --watch.")
    ] = 2.0,
) -> StatusReport:
    """Show every sink and query: last committed epoch, epochs in doubt or not written, the claim.

    Reads the commit logs only; `verify` checks the topics and tables. With --admin-url, also asks
    the broker about unfinished transactions.

        eos recovery status --commit-log /data/eos

        eos recovery status orders --commit-log s3://bucket/eos --json

        eos recovery status --watch

    Exit codes: 0 all epochs are finished; 1 an epoch is unfinished or not written, or a log is
    broken; 2 something could not be reached; 64 wrong options. --watch always exits with 0.
    """

    def read() -> StatusReport:
        seen = survey(target, sink, shows_progress=not watch)
        return StatusReport(**dict(seen), grace_s=grace_s)

    if watch:
        Watch(read, _table, every_s).run(as_json=target.as_json)  # never returns
    return read()


R = TypeVar("R", bound=Report)


class Watch(Generic[R]):
    """Calls ``read`` every ``every_s`` seconds and shows the report as ``table``."""

    def __init__(
        self, read: Callable[[], R], table: Callable[[R], RenderableType], every_s: float
    ) -> None:
        self._read = read
        self._table = table
        self._every_s = every_s

    def run(self, *, as_json: bool) -> NoReturn:
        """Show reports until Ctrl-C, or until the output pipe is closed.

        Raises:
            EosError: the first report failed.
            VerbExit: at the end, always; with exit code 0.
        """
        # Ctrl-C is how a watch ends: no error.
        with contextlib.suppress(KeyboardInterrupt):
            try:
                first = self._read()
                self._print_lines(first) if as_json else self._show(first)
            except BrokenPipeError:
                # Python would report the unwritten buffer at exit.
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise VerbExit(int(Exit.CLEAN))

    def _print_lines(self, report: R) -> NoReturn:
        print(report.model_dump_json(), flush=True)  # a pipe gets each line at once
        while True:
            time.sleep(self._every_s)
            # A log that disappears may come back: the watch continues.
            try:
                line = self._read().model_dump_json()
            except EosError as error:
                line = error_json(error)
            print(line, flush=True)

    def _show(self, report: R) -> NoReturn:
        console = new_console()
        shown = self._framed(self._table(report))
        if not console.is_terminal:
            while True:
                console.print(shown)
                console.file.flush()
                shown = self._next()
        with Live(shown, console=console, auto_refresh=False, vertical_overflow="visible") as live:
            while True:
                live.update(self._next(), refresh=True)

    def _next(self) -> RenderableType:
        time.sleep(self._every_s)
        try:
            return self._framed(self._table(self._read()))
        except EosError as error:
            return self._framed(Text(printable(str(error)), style="red"))

    def _framed(self, shown: RenderableType) -> RenderableType:
        note = (
            f"{now():%Y-%m-%d %H:%M:%S} UTC, refreshed every {self._every_s:g} s; stop with Ctrl-C"
        )
        return Group(shown, Text(note, style="dim"))
