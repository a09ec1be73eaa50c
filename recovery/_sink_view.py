"""A sink's log for operators: the progress of each query, and the epochs that need attention."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from rich.console import Console

from eos.cli.reports import Facts, age_s, ago, escape
from eos.protocol import (
    BATCH,
    FINAL,
    History,
    LogRecord,
    ReasonKind,
    State,
    decide_command,
    epoch_number,
    is_streaming,
)
from eos.pulsar.part import pulsar_part


class ClaimView(Facts):
    """The newest CLAIMED record."""

    run_id: str  # the only run that may append
    since: datetime
    age_s: float


class QueryProgress(Facts):
    """A query's progress."""

    query_id: str
    epoch: str | None  # its last one that is COMMITTED or EMPTY
    written_at: datetime | None
    age_s: float | None
    epochs: int  # still in the log: compaction drops old finished ones


class Unfinished(Facts):
    """An epoch without a recorded outcome: its newest record is OPEN, PREPARED or ABORTING."""

    query_id: str
    epoch: str
    attempt: int
    state: State
    what: str  # the attempt: its transaction and its other outputs
    txn: str | None
    opened_at: datetime
    age_s: float
    ttl_left_s: float | None
    written_age_s: float  # of its newest record, which the grace of `status` is compared with
    at_broker: str | None = None  # status at the coordinator; ``gone``: forgotten; None: not asked
    meaning: str


class UnwrittenEpoch(Facts):
    """An epoch that was attempted, is in none of the outputs, and was not abandoned."""

    query_id: str
    epoch: str
    state: State
    reason: str
    written_age_s: float  # of its newest record
    is_passed: bool  # a later epoch is committed: the query will not write this one again
    meaning: str
    way_out: str


class Decided(Facts):
    """An epoch whose outcome a person decided."""

    query_id: str
    epoch: str
    state: State
    reason: str  # who decided, and why
    written_at: datetime | None


class SinkView(Facts):
    """One sink."""

    sink_id: str
    claim: ClaimView | None
    last_seq: int
    last_record_age_s: float | None  # stays small while a driver is running
    service_url: str | None
    receipt_topic: str | None
    topics: list[str]  # newest last; more than one if the sink's topic was changed
    progress: list[QueryProgress]
    unfinished: list[Unfinished]
    owing: list[UnwrittenEpoch]
    decided: list[Decided]
    meaning: str


def view(history: History, records: Iterable[LogRecord]) -> SinkView:
    """Make the view of a log; ``records`` must be in the order of ``seq``."""
    records = list(records)  # may be an iterator, and is read several times
    claim = history.last_claim
    last = history.last
    unfinished = [_unfinished(record) for record in history.unfinished]
    owing = unwritten_epochs(history)
    return SinkView(
        sink_id=history.sink_id,
        claim=_claim(claim) if claim else None,
        last_seq=history.last_seq,
        last_record_age_s=age_s(last.written_at) if last else None,
        service_url=pulsar_part(last).service_url or None if last else None,
        receipt_topic=pulsar_part(last).receipt_topic or None if last else None,
        topics=_topics(records),
        progress=_progress(records),
        unfinished=unfinished,
        owing=owing,
        decided=_decided(records),
        meaning=_meaning(claim is not None, unfinished, owing),
    )


def _topics(records: Iterable[LogRecord]) -> list[str]:
    found: dict[str, None] = {}
    for topic in (topic for record in records for topic in pulsar_part(record).topics):
        found.pop(topic, None)  # a sink that returned to an earlier topic: it is the newest again
        found[topic] = None
    return list(found)


def _claim(record: LogRecord) -> ClaimView:
    assert record.written_at is not None
    return ClaimView(
        run_id=record.run_id, since=record.written_at, age_s=age_s(record.written_at) or 0.0
    )


def _progress(records: Iterable[LogRecord]) -> list[QueryProgress]:
    last: dict[str, LogRecord] = {}
    epochs: dict[str, set[str]] = {}
    for record in records:
        if record.query_id is None or record.epoch is None:
            continue  # CLAIMED: belongs to the sink, not to a query
        epochs.setdefault(record.query_id, set()).add(record.epoch)
        if record.state in FINAL:
            last[record.query_id] = record
    return [
        QueryProgress(
            query_id=query_id,
            epoch=last[query_id].epoch if query_id in last else None,
            written_at=last[query_id].written_at if query_id in last else None,
            age_s=age_s(last[query_id].written_at) if query_id in last else None,
            epochs=len(keys),
        )
        for query_id, keys in epochs.items()
    ]


def _unfinished(record: LogRecord) -> Unfinished:
    assert record.query_id is not None
    assert record.epoch is not None
    assert record.attempt is not None
    assert record.opened_at is not None
    over_s = age_s(record.expires_at)
    left = None if over_s is None else -over_s
    return Unfinished(
        query_id=record.query_id,
        epoch=record.epoch,
        attempt=record.attempt,
        state=record.state,
        what=record.label,
        txn=record.txn_id,
        opened_at=record.opened_at,
        age_s=age_s(record.opened_at) or 0.0,
        ttl_left_s=left,
        written_age_s=age_s(record.written_at) or 0.0,
        meaning=meaning_of(record.state, is_over=left is not None and left < 0),
    )


def unwritten_epochs(history: History) -> list[UnwrittenEpoch]:
    """The epochs that are not written, each with its meaning and the remedy."""
    return [_owing(history, record) for record in history.owing]


def _owing(history: History, record: LogRecord) -> UnwrittenEpoch:
    assert record.query_id is not None
    assert record.epoch is not None
    query_id, epoch = record.query_id, record.epoch
    give_up = f"\n{decide_command(record.sink_id, query_id, epoch, 'abandoned')}"
    is_passed = False
    if is_streaming(query_id):
        last = history.last_committed_epoch(query_id)
        is_passed = last is not None and last > epoch_number(query_id, epoch)
        meaning = "Its rows are not readable, and later epochs are refused until it is written"
        way_out = (
            f"Restart the query: it writes the epoch. If Spark continues after it, delete "
            f"commits/{epoch} and offsets/{int(epoch) + 1} and all later ones from its checkpoint. "
            f"To continue without its rows:{give_up}"
        )
        # Only an older release let a later epoch pass it: its query never writes this one again.
        if is_passed:
            meaning = f"Its rows are missing: epoch {last} was written without them"
            way_out = f"Write them under a separate batch key, or do without; then:{give_up}"
            if record.state is State.FAILED:  # or it was done before, and its record was dropped
                meaning = f"Its rows may be missing: epoch {last} is written"
                way_out = f"Only if the output lacks them: {way_out[0].lower()}{way_out[1:]}"
    else:
        meaning = "Not written: none of its rows is readable"
        way_out = f"Run the job again with the same key. To do without its rows:{give_up}"
    return UnwrittenEpoch(
        query_id=query_id,
        epoch=epoch,
        state=record.state,
        reason=str(record.reason),
        written_age_s=age_s(record.written_at) or 0.0,
        is_passed=is_passed,
        meaning=meaning,
        way_out=way_out,
    )


def _decided(records: Iterable[LogRecord]) -> list[Decided]:
    newest = {record.key: record for record in records if record.key is not None}
    return [
        Decided(
            query_id=str(record.query_id),
            epoch=str(record.epoch),
            state=record.state,
            reason=str(record.reason),
            written_at=record.written_at,
        )
        for record in newest.values()
        if is_decided(record)
    ]


def is_decided(record: LogRecord) -> bool:
    """Whether a person decided this outcome."""
    return record.reason is not None and record.reason.kind is ReasonKind.DECIDED


def meaning_of(state: State, *, is_over: bool) -> str:
    """The meaning of an unfinished state, in words."""
    match state:
        case State.OPEN if is_over:
            return "Not finished before its time to live ended: none of its rows is readable"
        case State.OPEN:
            return "Being written, or its driver died meanwhile: none of its rows is readable"
        case State.PREPARED:
            return "In doubt: commit decided, not yet known whether it took effect"
        case State.ABORTING:
            return "Abort decided, not yet known whether it took effect"
    return state.value


def _meaning(is_claimed: bool, unfinished: list[Unfinished], owing: list[UnwrittenEpoch]) -> str:
    if not is_claimed:
        return "Never used by a driver"
    if not unfinished and owing:
        return "Some attempted epochs are not in the outputs; nothing is in doubt"
    if not unfinished:
        return "All epochs are finished, according to the log; `verify` checks the outputs"
    states = {one.state for one in unfinished}
    # The most serious first: only PREPARED may have rows that readers see.
    if State.PREPARED in states:
        return "A commit is in doubt: a running driver ends it in a minute; otherwise run `resolve`"
    if State.ABORTING in states:
        return "An abort is not finished: a running driver ends it; otherwise run `resolve`"
    return "An epoch is being written; if no driver is running, run `resolve`"


def query_label(query_id: str) -> str:
    """A short name for a query: the first eight characters of Spark's uuid."""
    return query_id if query_id == BATCH or not is_streaming(query_id) else query_id[:8]


def render_unwritten(console: Console, sink_id: str, owing: list[UnwrittenEpoch]) -> None:
    """Print a paragraph for each epoch that is not written."""
    for one in owing:
        console.print(
            f"[bold]{escape(sink_id)}[/], {epoch_label(one)}: [yellow]{one.state.value}[/] "
            f"({escape(one.reason)}), {ago(one.written_age_s)}.\n   "
            f"{escape(one.meaning)}. {escape(one.way_out)}",
            soft_wrap=True,  # the command is copied
        )


def epoch_label(one: Unfinished | UnwrittenEpoch | Decided) -> str:
    """The name of an epoch in a sentence."""
    return f"epoch {escape(one.epoch)} of {escape(query_label(one.query_id))}"
