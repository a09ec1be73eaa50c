"""``eos recovery show``: the history of an epoch, record by record."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from eos.cli.reports import Exit, Report, escape
from eos.protocol import UNFINISHED, LogRecord
from eos.recovery._sink_view import (
    UnwrittenEpoch,
    is_decided,
    meaning_of,
    unwritten_epochs,
)
from eos.recovery._target import Target
from eos.recovery._timeline import (
    RECORD_MEANINGS,
    TimelineEntry,
    epoch_records,
    is_of_query,
    timeline_of,
    timeline_table,
)


class ShowReport(Report):
    """A sink's newest records, or all records of one epoch."""

    sink_id: str
    epoch: str | None
    moments: list[TimelineEntry]
    verdict: str
    is_unfinished: bool  # or not written

    @property
    def exit(self) -> Exit:
        """An unfinished epoch, or one that is not written, needs action."""
        return Exit.NEEDS_ACTION if self.is_unfinished else Exit.CLEAN

    def render(self, console: Console) -> None:
        """One line for each record."""
        what = f"epoch {self.epoch}" if self.epoch is not None else "the newest records"
        console.print(f"[bold]{escape(self.sink_id)}[/]: {escape(what)}")
        console.print(timeline_table(self.moments))
        for line in self.verdict.splitlines():  # commands are copied
            console.print(escape(line), soft_wrap=line.startswith("eos recovery "))


def show(
    target: Target,
    sink: Annotated[str, typer.Argument(help="The sink.")],
    epoch: Annotated[
        str | None, typer.Option(help="One epoch: Spark's batch id, or a batch job's key.")
    ] = None,
    query: Annotated[
        str | None,
        typer.Option(help="Its query id, or its beginning; `batch` for batch jobs."),
    ] = None,
    last: Annotated[
        int, typer.Option(min=1, help="Number of records to show without --epoch.")
    ] = 30,
) -> ShowReport:
    """Show the history of an epoch, record by record, with times and reasons.

    Without --epoch, shows the sink's newest records.

        eos recovery show orders --commit-log /data/eos

        eos recovery show orders --epoch 17 --commit-log /data/eos

    Exit codes: 0 all epochs shown are finished; 1 an epoch shown is unfinished or not written; 2
    the log could not be reached; 64 wrong options, or the epoch does not exist.
    """
    target.sinks(sink)
    log = target.log(sink)
    records = log.records()
    if epoch is None:
        chosen = [record for record in records if is_of_query(record, query)][-last:]
    else:
        chosen = epoch_records(sink, records, epoch, query)
    newest = {record.key: record for record in chosen if record.key is not None}
    waiting = [record for record in newest.values() if record.state in UNFINISHED]
    owing = [one for one in unwritten_epochs(log.history) if (one.query_id, one.epoch) in newest]
    return ShowReport(
        sink_id=sink,
        epoch=epoch,
        moments=timeline_of(chosen),
        verdict=_verdict(epoch, chosen, waiting, owing),
        is_unfinished=bool(waiting or owing),
    )


def _verdict(
    epoch: str | None,
    chosen: list[LogRecord],
    waiting: list[LogRecord],
    owing: list[UnwrittenEpoch],
) -> str:
    if waiting or owing:
        return "\n".join(
            [
                *(
                    f"Epoch {one.epoch} is {one.state.value}. "
                    f"{meaning_of(one.state, is_over=False)}."
                    for one in waiting
                ),
                *(
                    f"Epoch {one.epoch} is {one.state.value}. {one.meaning}. {one.way_out}"
                    for one in owing
                ),
            ]
        )
    if epoch is None:
        return "All epochs shown are finished." if chosen else "The log is empty."
    last = chosen[-1]
    by = f" {last.reason}." if is_decided(last) else ""
    return f"Epoch {epoch} is finished: {RECORD_MEANINGS[last.state][1]}.{by}"
