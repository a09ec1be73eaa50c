"""The records of an epoch, as moments of its life."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from rich.table import Table

from eos.cli.reports import Facts, duration, facts_table
from eos.errors import ConfigurationError
from eos.protocol import LogRecord, Part, State
from eos.pulsar.part import PulsarPart
from eos.recovery._sink_view import query_label
from eos.steps import Step

SAYS: Final = {
    State.CLAIMED: (Step.CLAIM, "a driver, or this tool, took the sink over"),
    State.OPEN: (Step.OPEN, "begun: Spark's tasks write what nobody reads yet"),
    State.PREPARED: (Step.PREPARE, "every row is stored: decided to commit"),
    State.ABORTING: (Step.END, "decided to abort"),
    State.COMMITTED: (Step.FINISH, "committed: readers have it, whole"),
    State.ABORTED: (Step.FINISH, "aborted: nothing of this attempt is readable"),
    State.EMPTY: (Step.FINISH, "there were no rows; done"),
    State.FAILED: (Step.DECIDE, "failed before a transaction was opened: nothing was written"),
    State.ABANDONED: (Step.FINISH, "a person gave its rows up: its query may go on without them"),
}
"""Which step wrote a record, and what it says."""


class WrittenOutput(Facts):
    """What an attempt wrote to one output. ``partitions``: of a topic; None for others."""

    kind: str
    output: str
    records: int
    partitions: int | None

    def __str__(self) -> str:
        where = f"{self.kind} {self.output}"
        if self.partitions is not None:
            where = f"{self.partitions} partitions of {self.output}"
        return f"{self.records:,} rows in {where}"


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
    written: list[WrittenOutput]
    reason: str | None


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
    if moment.state in (State.PREPARED, State.COMMITTED):
        parts += [str(written) for written in moment.written]
    if moment.reason:
        parts.append(moment.reason)
    if moment.state is State.CLAIMED:
        parts.append(f"run {moment.run_id[:8]}")
    return "; ".join(parts)


def is_of(record: LogRecord, query: str | None) -> bool:
    """Whether ``record`` is of ``query``, the head of an id; None: any."""
    return query is None or (record.query_id is not None and record.query_id.startswith(query))


def life_of(sink: str, records: list[LogRecord], epoch: str, query: str | None) -> list[LogRecord]:
    """The records of one epoch of one query; ``query`` may be the head of its id.

    Raises:
        ConfigurationError: there are none, or several queries have such an epoch.
    """
    chosen = [record for record in records if record.epoch == epoch and is_of(record, query)]
    if not chosen:
        raise ConfigurationError(
            f"The log of {sink} holds no epoch {epoch}.",
            hint="It was never begun, or was finished long ago and dropped. `show` without "
            "--epoch lists the epochs.",
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
        step, says = SAYS[record.state]
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
                txn=record.txn_id,
                records=record.records,
                bytes=record.bytes,
                written=[_written(part) for part in record.participants if part.records],
                reason=str(record.reason) if record.reason else None,
            )
        )
    return moments


def _written(part: Part) -> WrittenOutput:
    return WrittenOutput(
        kind=part.kind,
        output=part.output,
        records=part.records or 0,
        partitions=len(part.partitions) if isinstance(part, PulsarPart) else None,
    )
