"""``eos recovery show``: the life of an epoch, step by step."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from eos.cli.exit_codes import Exit
from eos.cli.reports import Report, escape
from eos.protocol import UNFINISHED, LogRecord
from eos.recovery._sink_view import (
    Owing,
    is_decided,
    meaning_of,
    owing_of,
)
from eos.recovery._target import Target
from eos.recovery._timeline import SAYS, Moment, is_of, life_of, moments_of, moments_table


class ShowReport(Report):
    """A sink's newest epochs, or one epoch's whole life."""

    sink_id: str
    epoch: str | None
    moments: list[Moment]
    verdict: str
    is_unfinished: bool
    """An epoch that is shown has a transaction to be ended, or is not written."""

    @property
    def exit(self) -> Exit:
        """Unfinished, or attempted and not written: action."""
        return Exit.NEEDS_ACTION if self.is_unfinished else Exit.CLEAN

    def render(self, console: Console) -> None:
        """One line for each record."""
        what = f"epoch {self.epoch}" if self.epoch is not None else "the newest records"
        console.print(f"[bold]{escape(self.sink_id)}[/]: {escape(what)}")
        console.print(moments_table(self.moments))
        console.print(escape(self.verdict))


def show(
    target: Target,
    sink: Annotated[str, typer.Argument(help="The sink.")],
    epoch: Annotated[
        str | None, typer.Option(help="One epoch: Spark's batch id, or a batch job's key.")
    ] = None,
    query: Annotated[
        str | None, typer.Option(help="Its query id, or the head of it; `batch` for batch jobs.")
    ] = None,
    last: Annotated[int, typer.Option(min=1, help="Without --epoch: how many records.")] = 30,
) -> ShowReport:
    """The life of an epoch, step by step, with times; without --epoch the newest records.

        eos recovery show orders --commit-log /data/eos

        eos recovery show orders --epoch 17 --commit-log /data/eos

    Exit codes: 0 what is shown is finished; 1 an epoch shown is not, or not written; 2 the log
    could not be reached; 64 wrong options, or no such epoch.
    """
    target.sinks(sink)
    log = target.log(sink)
    records = log.records()
    if epoch is None:
        chosen = [record for record in records if is_of(record, query)][-last:]
    else:
        chosen = life_of(sink, records, epoch, query)
    newest = {record.key: record for record in chosen if record.key is not None}
    waiting = [record for record in newest.values() if record.state in UNFINISHED]
    owing = [one for one in owing_of(log.history) if (one.query_id, one.epoch) in newest]
    return ShowReport(
        sink_id=sink,
        epoch=epoch,
        moments=moments_of(chosen),
        verdict=_verdict(epoch, chosen, waiting, owing),
        is_unfinished=bool(waiting or owing),
    )


def _verdict(
    epoch: str | None, chosen: list[LogRecord], waiting: list[LogRecord], owing: list[Owing]
) -> str:
    if waiting or owing:
        return " ".join(
            [
                *(
                    f"Epoch {one.epoch} is {one.state.value}. "
                    f"{meaning_of(one.state, is_over=False)}."
                    for one in waiting
                ),
                *(
                    f"Epoch {one.epoch} is {one.state.value}. {one.meaning}. {one.way_out}."
                    for one in owing
                ),
            ]
        )
    if epoch is None:
        return "Everything shown is finished." if chosen else "The log is empty."
    last = chosen[-1]
    by = f" {last.reason}." if is_decided(last) else ""
    return f"Epoch {epoch} is done: {SAYS[last.state][1]}.{by}"
