"""``eos-recovery show``: the life of an epoch, step by step."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.table import Table

from eos.errors import ConfigurationError
from eos.protocol import UNFINISHED, LogRecord, State
from eos.steps import Step
from recovery.exits import Exit
from recovery.report import Facts, Report, duration, escape, facts_table
from recovery.sink_view import (
    Owing,
    is_decided,
    meaning_of,
    owing_of,
    query_label,
    topic_of,
)
from recovery.target import Target

_SAYS: Final = {
    State.CLAIMED: (Step.CLAIM, "a driver, or this tool, took the sink over"),
    State.OPEN: (Step.OPEN, "a transaction was opened; Spark's tasks write in it"),
    State.PREPARED: (Step.PREPARE, "every row and the receipt are stored: decided to commit"),
    State.ABORTING: (Step.END, "decided to abort"),
    State.COMMITTED: (Step.FINISH, "committed: readers have it, whole"),
    State.ABORTED: (Step.FINISH, "aborted: nothing of this attempt is readable"),
    State.EMPTY: (Step.FINISH, "there were no rows; done"),
    State.FAILED: (Step.DECIDE, "failed before a transaction was opened: nothing was written"),
    State.ABANDONED: (Step.FINISH, "a person gave its rows up: its query may go on without them"),
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
    topic: str | None
    reason: str | None


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


def moments_table(moments: list[Moment]) -> Table:
    """Two lines for each record: when, and what it says."""
    return facts_table((f"seq {m.seq}", f"{_when(m)}\n{_story(m)}") for m in moments)


def _when(moment: Moment) -> str:
    parts = [moment.state.value]
    if moment.at:
        parts.append(f"{moment.at:%Y-%m-%d %H:%M:%S} UTC")
    if moment.after_s is not None:
        parts.append(f"{duration(moment.after_s)} later")
    if moment.query_id and moment.epoch:
        attempt = "" if moment.attempt is None else f" #{moment.attempt}"
        parts.append(f"epoch {moment.epoch}{attempt} of {query_label(moment.query_id)}")
    return ", ".join(parts)


def _story(moment: Moment) -> str:
    parts = [moment.says]
    if moment.txn:
        parts.append(f"transaction {moment.txn}")
    if moment.records is not None and moment.state in (State.PREPARED, State.COMMITTED):
        where = f"{moment.partitions} partitions of {moment.topic}"
        parts.append(f"{moment.records:,} rows in {where}")
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

    Exit codes: 0 what is shown is finished; 1 an epoch shown is not, or not written; 2 the log
    could not be reached; 64 wrong options, or no such epoch.
    """
    target.sinks(sink)
    log = target.log(sink)
    records = log.records()
    if epoch is None:
        chosen = [record for record in records if _is_of(record, query)][-last:]
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


def _is_of(record: LogRecord, query: str | None) -> bool:
    return query is None or (record.query_id is not None and record.query_id.startswith(query))


def life_of(sink: str, records: list[LogRecord], epoch: str, query: str | None) -> list[LogRecord]:
    """The records of one epoch of one query; ``query`` may be the head of its id.

    Raises:
        ConfigurationError: there are none, or several queries have such an epoch.
    """
    chosen = [record for record in records if record.epoch == epoch and _is_of(record, query)]
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
    return chosen


def moments_of(records: list[LogRecord]) -> list[Moment]:
    """One moment for each record."""
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
                topic=topic_of(record),
                reason=str(record.reason) if record.reason else None,
            )
        )
    return moments


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
    return f"Epoch {epoch} is done: {_SAYS[last.state][1]}.{by}"
