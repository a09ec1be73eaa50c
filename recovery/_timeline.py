"""The records of an epoch as a timeline."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from rich.table import Table

from eos.cli.reports import Facts, counted, duration, facts_table
from eos.errors import ConfigurationError
from eos.protocol import LogRecord, Part, State
from eos.pulsar.part import PulsarPart
from eos.recovery._sink_view import query_label
from eos.steps import Step

# The step that writes each kind of record, and its meaning.
RECORD_MEANINGS: Final = {
    State.CLAIMED: (Step.CLAIM, "a driver, or this tool, claimed the sink"),
    State.OPEN: (Step.OPEN, "begun: Spark's tasks are writing; readers do not see it yet"),
    State.PREPARED: (Step.PREPARE, "commit decided: every row is stored"),
    State.ABORTING: (Step.END, "abort decided"),
    State.COMMITTED: (Step.FINISH, "committed: readers see all of its rows"),
    State.ABORTED: (Step.FINISH, "aborted: none of this attempt's rows is readable"),
    State.EMPTY: (Step.FINISH, "finished: there were no rows"),
    State.FAILED: (Step.DECIDE, "failed before a transaction was opened: nothing was written"),
    State.ABANDONED: (
        Step.FINISH,
        "abandoned by a person: its query may continue without its rows",
    ),
}


class WrittenOutput(Facts):
    """An attempt's rows in one output."""

    kind: str
    output: str
    records: int
    partitions: int | None  # None: not a topic

    def __str__(self) -> str:
        where = f"{self.kind} {self.output}"
        if self.partitions is not None:
            where = f"{counted(self.partitions, 'partition')} of {self.output}"
        return f"{counted(self.records, 'row')} in {where}"


class TimelineEntry(Facts):
    """One record of the log."""

    seq: int
    query_id: str | None
    epoch: str | None
    attempt: int | None
    state: State
    step: int
    says: str
    at: datetime | None
    after_s: float | None  # since the previous record
    run_id: str
    txn: str | None
    records: int | None
    bytes: int | None
    written: list[WrittenOutput]
    reason: str | None


def timeline_table(entries: list[TimelineEntry]) -> Table:
    """A table with two lines for each record: when, and its meaning."""
    return facts_table(
        (f"seq {entry.seq}", f"{_when(entry)}\n{_meaning(entry)}") for entry in entries
    )


def _when(entry: TimelineEntry) -> str:
    parts = [entry.state.value]
    if entry.at:
        parts.append(f"{entry.at:%Y-%m-%d %H:%M:%S} UTC")
    if entry.after_s is not None:
        parts.append(f"{duration(entry.after_s)} later")
    if entry.query_id and entry.epoch:
        attempt = "" if entry.attempt is None else f" #{entry.attempt}"
        parts.append(f"epoch {entry.epoch}{attempt} of {query_label(entry.query_id)}")
    return ", ".join(parts)


def _meaning(entry: TimelineEntry) -> str:
    parts = [entry.says]
    if entry.txn:
        parts.append(f"transaction {entry.txn}")
    if entry.state in (State.PREPARED, State.COMMITTED):
        parts += [str(written) for written in entry.written]
    if entry.reason:
        parts.append(entry.reason)
    if entry.state is State.CLAIMED:
        parts.append(f"run {entry.run_id[:8]}")
    return "; ".join(parts)


def is_of_query(record: LogRecord, query: str | None) -> bool:
    """Whether ``record`` belongs to the query whose id begins with ``query``; None matches all."""
    return query is None or (record.query_id is not None and record.query_id.startswith(query))


def epoch_records(
    sink: str, records: list[LogRecord], epoch: str, query: str | None
) -> list[LogRecord]:
    """Return the records of one epoch; ``query`` may be the first characters of the query id.

    Raises:
        ConfigurationError: there are no records, or several queries have such an epoch.
    """
    chosen = [record for record in records if record.epoch == epoch and is_of_query(record, query)]
    if not chosen:
        raise ConfigurationError(
            f"Epoch {epoch} is not in the log of {sink}.",
            hint="It was never begun, or it finished long ago and was dropped. `show` without "
            "--epoch lists the epochs.",
        )
    # Every query counts its epochs from 0, so a number alone may name several.
    queries = sorted({str(record.query_id) for record in chosen})
    if len(queries) > 1:
        raise ConfigurationError(
            f"Several queries have epoch {epoch}.",
            hint=f"Add --query with one of: {', '.join(queries)}.",
        )
    return chosen


def timeline_of(records: list[LogRecord]) -> list[TimelineEntry]:
    """Make one entry for each record."""
    entries = []
    before: datetime | None = None
    for record in records:
        step, says = RECORD_MEANINGS[record.state]
        after_s = None
        if before is not None and record.written_at is not None:
            after_s = round((record.written_at - before).total_seconds(), 3)
        before = record.written_at
        entries.append(
            TimelineEntry(
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
                txn=record.txn_id,
                records=record.records,
                bytes=record.bytes,
                written=[_written(part) for part in record.participants if part.records],
                reason=str(record.reason) if record.reason else None,
            )
        )
    return entries


def _written(part: Part) -> WrittenOutput:
    return WrittenOutput(
        kind=part.kind,
        output=part.output,
        records=part.records or 0,
        partitions=len(part.partitions) if isinstance(part, PulsarPart) else None,
    )
