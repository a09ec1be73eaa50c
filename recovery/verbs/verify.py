"""``eos recovery verify``: compare topics, tables and receipts with the log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress as Bar
from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

from eos.cli.reports import Exit, Report, counted, escape, new_console, worst
from eos.errors import printable
from eos.recovery._sink_view import query_label, render_unwritten
from eos.recovery._target import Target
from eos.recovery.audit.partition import Finding
from eos.recovery.audit.sink_audit import AuditedSink, SinkAudit


class VerifyReport(Report):
    """The audit."""

    sinks: list[AuditedSink]
    findings: list[Finding]  # errors in the outputs
    broken: list[str]  # unreadable or damaged logs
    unknown: list[str]  # checks that could not be made

    @property
    def exit(self) -> Exit:
        """Findings, broken logs, and epochs that are unfinished or not written need action."""
        # A check that could not be made is never clean.
        unfinished = any(sink.unfinished or sink.owing for sink in self.sinks)
        return worst(
            Exit.NEEDS_ACTION if self.findings or self.broken or unfinished else Exit.CLEAN,
            Exit.UNKNOWN if self.unknown else Exit.CLEAN,
        )

    def render(self, console: Console) -> None:
        """A paragraph for each sink; the verdict is the last line."""
        for sink in self.sinks:
            console.print(f"[bold]{escape(sink.sink_id)}[/]: {escape('; '.join(_counted(sink)))}")
            for one in sink.unfinished:
                console.print(
                    f"   [yellow]epoch {escape(one.epoch)} {one.state.value}[/]: "
                    f"{escape(one.meaning)}. `resolve` ends it."
                )
            render_unwritten(console, sink.sink_id, list(sink.owing))
            for by in sink.decided:
                console.print(
                    f"   epoch {escape(by.epoch)} {by.state.value}, decided by a person. "
                    f"{escape(by.reason)}"
                )
        for finding in self.findings:
            at = f" First: {finding.message_id}." if finding.message_id else ""
            whose = finding.sink_id
            if finding.epoch is not None:
                whose += f", epoch {finding.epoch} of {query_label(finding.query_id or '-')}"
            console.print(
                f"[red]Wrong:[/] {escape(whose)}, {escape(finding.topic)}: "
                f"{escape(finding.what)}.{at}"
            )
        for text in self.broken:
            console.print(f"[red]Wrong:[/] {escape(text)}")
        for text in self.unknown:
            console.print(f"[yellow]Not checked:[/] {escape(text)}")
        for sink in self.sinks:
            for change in sink.changes:
                console.print(f"Since then, {escape(change)}.")
        verdict = {
            Exit.CLEAN: f"[green]{escape(self._clean())}[/]",
            Exit.UNKNOWN: "[yellow]No error was found, but not everything was checked.[/]",
        }
        console.print(verdict.get(self.exit, "[red]Action is needed: see above.[/]"))

    def _clean(self) -> str:
        # The verdict claims no more than was checked.
        only = sorted({output for sink in self.sinks for output in sink.newest_only})
        if any(sink.trimmed for sink in self.sinks):
            whole = (
                "Every committed epoch that the topics still hold is complete, without duplicates."
            )
        elif any(sink.is_changed for sink in self.sinks):
            whole = (
                "Every committed epoch was written completely, once; some rows were changed later."
            )
        else:
            whole = "Every committed epoch is there, complete, without duplicates."
        said = [
            whole,
            *(_not_written_to(sink) for sink in self.sinks),
            f"Only the newest epoch was checked in: {', '.join(only)}." if only else "",
        ]
        return " ".join(filter(None, said))


def _not_written_to(sink: AuditedSink) -> str:
    """The number of epochs that were not written to an output, because the sink got it later."""
    later = [
        f"{sink.epochs - one.epochs:,} epochs were not written to {one.output}"
        for one in sink.by_output
        if not one.is_earlier and one.epochs < sink.epochs
    ]
    if not later:
        return ""
    return f"Sink {sink.sink_id}: {'; '.join(later)}."


def _counted(sink: AuditedSink) -> Iterator[str]:
    has_topic = sink.partitions or not sink.outputs
    parts = [(sink.epochs, "committed epoch")]
    if has_topic:
        parts += [(sink.records, "message"), (sink.bytes, "byte"), (sink.receipts, "receipt")]
    yield ", ".join(counted(*part) for part in parts)
    for one in sink.by_output:
        if one.output in sink.newest_only:
            continue
        which = "" if one.epochs == sink.epochs else f", of {counted(one.epochs, 'epoch')}"
        earlier = "the earlier output " if one.is_earlier else ""
        # Rows of upserts have no marks.
        found = f"{counted(one.rows, 'row')} unchanged"
        if not one.rows:
            found = f"{counted(one.epochs, 'epoch')} committed"
        yield f"{found} in {earlier}{one.output}{which}"
    if sink.newest_only:
        yield f"only the newest epoch was checked in {', '.join(sink.newest_only)}"
    if sink.trimmed:
        yield f"{sink.trimmed} parts are no longer there: trimmed, or lost with their topic"
    if sink.others:
        yield f"{sink.others:,} messages of other producers"


def verify(
    target: Target,
    sink: Annotated[str | None, typer.Argument(help="Only this sink; all by default.")] = None,
    last: Annotated[
        int | None,
        typer.Option(min=1, help="Check only this many of the newest epochs of each sink."),
    ] = None,
    silence_s: Annotated[
        float,
        typer.Option(
            min=1, help="Stop reading a partition after this many seconds without an entry."
        ),
    ] = 30.0,
) -> VerifyReport:
    """Check that every committed epoch is in the outputs: complete, and without duplicates.

    Reads the receipts and all partitions of the topics, as a consumer does, and compares counts and
    checksums with the log. Each entry carries its transaction, so rows of a repeated task and rows
    of an aborted attempt are found. With --admin-url, messages removed by retention are told apart
    from lost ones. In Delta and Iceberg tables, compares the files by name, size and row count; in
    PostgreSQL, asks `eos_epochs`, which does not show later changes of rows. Changes nothing.

        eos recovery verify orders --commit-log /data/eos --admin-url http://broker:8080

    Exit codes: 0 every committed epoch is complete; 1 something is wrong, unfinished or not
    written, or a log is broken; 2 not everything could be checked; 64 wrong options.
    """
    audits: list[AuditedSink] = []
    findings: list[Finding] = []
    broken: list[str] = []
    unknown: list[str] = []
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    # Standard output is for the report alone.
    with Bar(*columns, console=new_console(stderr=True), transient=True) as bar:
        task = bar.add_task("reading")
        for sink_id in target.sinks(sink):
            audit = SinkAudit(target, sink_id, last, silence_s)
            for step in audit.run():
                bar.update(task, description=printable(step))
            audits.append(audit.facts)
            findings += audit.findings
            broken += audit.broken
            unknown += audit.unknown
    return VerifyReport(sinks=audits, findings=findings, broken=broken, unknown=unknown)
