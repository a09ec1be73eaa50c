"""``eos recovery verify``: read topics and receipts again, and compare them with the log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress as Bar
from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

from eos.cli.exit_codes import Exit, worst
from eos.cli.reports import Report, escape
from eos.recovery._sink_view import query_label, render_owing
from eos.recovery._target import Target
from eos.recovery.audit.partition import Finding
from eos.recovery.audit.sink import AuditedSink, SinkAudit


class VerifyReport(Report):
    """The audit. ``findings``: what must not be; ``broken``: logs that can't be relied on;
    ``unknown``: what could not be checked."""

    sinks: list[AuditedSink]
    findings: list[Finding]
    broken: list[str]
    unknown: list[str]

    @property
    def exit(self) -> Exit:
        """Findings, broken logs and epochs that are unfinished or not written need action; what
        was not checked is unknown."""
        unfinished = any(sink.unfinished or sink.owing for sink in self.sinks)
        return worst(
            Exit.NEEDS_ACTION if self.findings or self.broken or unfinished else Exit.CLEAN,
            Exit.UNKNOWN if self.unknown else Exit.CLEAN,
        )

    def render(self, console: Console) -> None:
        """The verdict last, where the eye is."""
        for sink in self.sinks:
            console.print(f"[bold]{escape(sink.sink_id)}[/]: {escape('; '.join(_counted(sink)))}")
            for one in sink.unfinished:
                console.print(
                    f"   [yellow]epoch {escape(one.epoch)} {one.state.value}[/]: "
                    f"{escape(one.meaning)}. `resolve` ends it."
                )
            render_owing(console, sink.sink_id, list(sink.owing))
            for by in sink.decided:
                console.print(
                    f"   epoch {escape(by.epoch)} {by.state.value}, as a person decided. "
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
            Exit.UNKNOWN: "[yellow]Nothing wrong was found, but not everything was checked.[/]",
        }
        console.print(verdict.get(self.exit, "[red]Something needs action.[/]"))

    def _clean(self) -> str:
        """The verdict where nothing is wrong, no larger than what was looked at."""
        only = sorted({output for sink in self.sinks for output in sink.newest_only})
        if any(sink.trimmed for sink in self.sinks):
            whole = "Of what the topics still hold, every committed epoch is whole, once."
        elif any(sink.is_changed for sink in self.sinks):
            whole = "Every committed epoch came there whole, once; some rows were changed since."
        else:
            whole = "Every committed epoch is there, whole, once."
        said = [
            whole,
            *(_never_there(sink) for sink in self.sinks),
            f"Not looked into, but for the newest epoch: {', '.join(only)}." if only else "",
        ]
        return " ".join(filter(None, said))


def _never_there(sink: AuditedSink) -> str:
    """Of which outputs "every epoch is there" is not said: they came later than some epochs."""
    later = [
        f"{sink.epochs - one.epochs:,} not to {one.output}"
        for one in sink.by_output
        if not one.is_earlier and one.epochs < sink.epochs
    ]
    if not later:
        return ""
    return f"Of {sink.sink_id}, each is where it was written to: {'; '.join(later)}."


def _counted(sink: AuditedSink) -> Iterator[str]:
    has_topic = sink.partitions or not sink.outputs
    topics = f", {sink.records:,} messages, {sink.bytes:,} bytes, {sink.receipts} receipts"
    yield f"{sink.epochs} committed epochs" + (topics if has_topic else "")
    for one in sink.by_output:
        if one.output in sink.newest_only:
            continue
        which = "" if one.epochs == sink.epochs else f", of {one.epochs:,} epochs"
        earlier = "its earlier " if one.is_earlier else ""
        yield f"{one.rows:,} rows are in {earlier}{one.output} as they were committed{which}"
    if sink.newest_only:
        yield f"the newest was asked for in {', '.join(sink.newest_only)}"
    if sink.trimmed:
        yield f"{sink.trimmed} parts are gone since: trimmed, or lost with their topic"
    if sink.others:
        yield f"{sink.others:,} messages of others"


def verify(
    target: Target,
    sink: Annotated[str | None, typer.Argument(help="Only this sink; all by default.")] = None,
    last: Annotated[
        int | None, typer.Option(min=1, help="Only the newest epochs of each sink, this many.")
    ] = None,
    silence_s: Annotated[
        float, typer.Option(min=1, help="Give up on a partition that yields nothing for so long.")
    ] = 30.0,
) -> VerifyReport:
    """Audit: every committed epoch complete by count and checksum, and nothing of another.

    Reads the topics, all their partitions, and the receipts, as readers get them, and compares
    them with the log. Each entry carries its transaction: rows of a second run in a committed
    one are found, and rows of an aborted one. With --admin-url it can tell messages that retention
    has removed from messages that were lost. Of a Delta table it compares the files, by name, size
    and statistics; of one that was removed it says by which commit of the table. Changes nothing.

        eos recovery verify orders --commit-log /data/eos --admin-url http://broker:8080

    Exit codes: 0 everything is there, whole, once; 1 something is wrong, unfinished or not
    written, or a log is broken; 2 not everything could be checked; 64 wrong options.
    """
    audits: list[AuditedSink] = []
    findings: list[Finding] = []
    broken: list[str] = []
    unknown: list[str] = []
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("reading")
        for sink_id in target.sinks(sink):
            audit = SinkAudit(target, sink_id, last, silence_s)
            for doing in audit.run():
                bar.update(task, description=doing)
            audits.append(audit.facts)
            findings += audit.findings
            broken += audit.broken
            unknown += audit.unknown
    return VerifyReport(sinks=audits, findings=findings, broken=broken, unknown=unknown)
