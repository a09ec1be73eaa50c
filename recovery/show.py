"""``eos-recovery show``: the life of an epoch, step by step."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.table import Table

from eos.errors import ConfigurationError
from eos.steps import Step
from eos.transaction import FINAL, UNFINISHED, LogRecord, State
from recovery.exits import Exit
from recovery.report import Facts, Report, duration, escape
from recovery.sink_view import meaning_of, query_label
from recovery.target import Target

_SAYS: Final = {
    State.CLAIMED: (Step.CLAIM, "a driver, or this tool, took the sink over"),
    State.OPEN: (Step.OPEN, "a transaction was opened; Spark's tasks write in it"),
    State.PREPARED: (Step.PREPARE, "every row and the receipt are stored: decided to commit"),
    State.ABORTING: (Step.END, "decided to abort"),
    State.COMMITTED: (Step.FINISH, "committed: readers have it, whole"),
    State.ABORTED: (Step.FINISH, "aborted: nothing of this attempt is readable"),
    State.EMPTY: (Step.FINISH, "there were no rows; done"),
}


class Moment(Facts):
    """One record of the log. ``after_s``: since the record above it."""

    seq: int
    query_id: str | None
    epoch: str | None
    attempt: int | None
    state: State
    step: int
    says: str
    at: datetime | None
    after_s: float | None
    run_id: str
    txn: str | None
    records: int | None
    bytes: int | None
    partitions: int
    reason: str | None


class ShowReport(Report):
    """A sink's newest epochs, or one epoch's whole life."""

    sink_id: str
    epoch: str | None
    moments: list[Moment]
    verdict: str
    is_unfinished: bool

    @property
    def exit(self) -> Exit:
        """Unfinished: action."""
        return Exit.NEEDS_ACTION if self.is_unfinished else Exit.CLEAN

    def render(self, console: Console) -> None:
        """One line for each record."""
        what = f"epoch {self.epoch}" if self.epoch is not None else "the newest records"
        table = Table(title=f"{escape(self.sink_id)}: {escape(what)}", title_justify="left")
        for name in ("seq", "query", "epoch", "at (UTC)", "after", "state", "what happened"):
            table.add_column(name, overflow="fold")
        for moment in self.moments:
            table.add_row(
                str(moment.seq),
                query_label(moment.query_id) if moment.query_id else "-",
                escape(moment.epoch or "-") + (f" #{moment.attempt}" if moment.attempt else ""),
                f"{moment.at:%Y-%m-%d %H:%M:%S}" if moment.at else "-",
                duration(moment.after_s),
                moment.state.value,
                escape(_story(moment)),
            )
        console.print(table)
        console.print(escape(self.verdict))


def _story(moment: Moment) -> str:
    parts = [moment.says]
    if moment.txn:
        parts.append(f"transaction {moment.txn}")
    if moment.records is not None and moment.state in (State.PREPARED, State.COMMITTED):
        parts.append(f"{moment.records:,} rows in {moment.partitions} partitions")
    if moment.reason:
        parts.append(moment.reason)
    if moment.state is State.CLAIMED:
        parts.append(f"run {moment.run_id[:8]}")
    return "; ".join(parts)


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

        eos-recovery show orders --commit-log /data/eos

        eos-recovery show orders --epoch 17 --commit-log /data/eos

    Exit codes: 0 what is shown is finished; 1 an epoch shown is not; 2 the log could not be
    reached; 64 wrong options, or no such epoch.
    """
    target.sinks(sink)
    records = target.log(sink).records()
    if query is not None:
        records = [r for r in records if r.query_id is not None and r.query_id.startswith(query)]
    if epoch is None:
        chosen = records[-last:]
    else:
        chosen = [record for record in records if record.epoch == epoch]
        _check_one_query(sink, epoch, chosen)
    newest = {record.key: record for record in chosen if record.key is not None}
    waiting = [record for record in newest.values() if record.state in UNFINISHED]
    return ShowReport(
        sink_id=sink,
        epoch=epoch,
        moments=_moments(chosen),
        verdict=_verdict(epoch, chosen, waiting),
        is_unfinished=bool(waiting),
    )


def _check_one_query(sink: str, epoch: str, chosen: list[LogRecord]) -> None:
    if not chosen:
        raise ConfigurationError(
            f"The log of {sink} holds no epoch {epoch}.",
            hint="It was never begun, or was finished long ago and dropped; `show` without "
            "--epoch lists what is there.",
        )
    queries = sorted({str(record.query_id) for record in chosen})
    if len(queries) > 1:
        raise ConfigurationError(
            f"Several queries have an epoch {epoch}.", hint=f"Add --query: {', '.join(queries)}."
        )


def _moments(records: list[LogRecord]) -> list[Moment]:
    moments = []
    before: datetime | None = None
    for record in records:
        step, says = _SAYS[record.state]
        after_s = None
        if before is not None and record.written_at is not None:
            after_s = round((record.written_at - before).total_seconds(), 3)
        before = record.written_at
        moments.append(
            Moment(
                seq=record.seq,
                query_id=record.query_id,
                epoch=record.epoch,
                attempt=record.attempt,
                state=record.state,
                step=step.number,
                says=says,
                at=record.written_at,
                after_s=after_s,
                run_id=record.run_id,
                txn=str(record.txn) if record.txn else None,
                records=record.records,
                bytes=record.bytes,
                partitions=len(record.partitions),
                reason=str(record.reason) if record.reason else None,
            )
        )
    return moments


def _verdict(epoch: str | None, chosen: list[LogRecord], waiting: list[LogRecord]) -> str:
    if waiting:
        return " ".join(
            f"Epoch {one.epoch} is {one.state.value}. {meaning_of(one.state, is_over=False)}."
            for one in waiting
        )
    if epoch is None:
        return "Everything shown is finished." if chosen else "The log is empty."
    last = chosen[-1]
    if last.state in FINAL:
        return f"Epoch {epoch} is done: {_SAYS[last.state][1]}."
    return f"Epoch {epoch} was aborted {last.attempt} times; the next run of its query writes it."
