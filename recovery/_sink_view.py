"""A sink's log as an operator sees it: which query stands where, and what is not finished."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from rich.console import Console

from eos.cli.reports import Facts, age_s, duration, escape
from eos.protocol import (
    BATCH,
    FINAL,
    History,
    LogRecord,
    ReasonKind,
    State,
    epoch_number,
    is_streaming,
)
from eos.pulsar.part import pulsar_part


class ClaimView(Facts):
    """Who may append: the newest CLAIMED."""

    run_id: str
    since: datetime
    age_s: float


class QueryProgress(Facts):
    """How far a query is. ``epoch``: the last one that is COMMITTED or EMPTY."""

    query_id: str
    epoch: str | None
    written_at: datetime | None
    age_s: float | None
    epochs: int
    """How many of its epochs the log still holds."""


class Unfinished(Facts):
    """An epoch whose transaction is neither committed nor aborted as far as the log knows."""

    query_id: str
    epoch: str
    attempt: int
    state: State
    what: str
    """The attempt, in words: its transaction, and what else it has written to."""
    txn: str | None
    opened_at: datetime
    age_s: float
    ttl_left_s: float | None
    written_age_s: float
    """Since the newest record of the epoch."""
    at_broker: str | None = None
    """The coordinator's word for it; ``gone`` when it has forgotten it; None: not asked."""
    meaning: str


class Owing(Facts):
    """An epoch that was attempted, is not in the topics, and was not given up."""

    query_id: str
    epoch: str
    state: State
    reason: str
    written_age_s: float
    """Since its newest record."""
    is_passed: bool
    """A later epoch of its query was written: no run of the query writes this one any more."""
    meaning: str
    way_out: str


class Decided(Facts):
    """What a person decided, where nothing could be proved; ``reason`` says who, and why."""

    query_id: str
    epoch: str
    state: State
    reason: str
    written_at: datetime | None


class SinkView(Facts):
    """One sink. ``last_record_age_s``: how fresh the log is; a live driver keeps it so."""

    sink_id: str
    claim: ClaimView | None
    last_seq: int
    last_record_age_s: float | None
    service_url: str | None
    receipt_topic: str | None
    topics: list[str]
    """Where rows were sent, the newest last; several: the sink's topic was changed."""
    progress: list[QueryProgress]
    unfinished: list[Unfinished]
    owing: list[Owing]
    decided: list[Decided]
    meaning: str


def view(history: History, records: Iterable[LogRecord]) -> SinkView:
    """The view of a log; ``records`` in the order of ``seq``."""
    records = list(records)
    claim = history.last_claim
    last = history.last
    unfinished = [_unfinished(record) for record in history.unfinished]
    owing = owing_of(history)
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
        found.pop(topic, None)  # a topic that was gone back to is the newest one again
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
            continue
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
    age = age_s(record.opened_at) or 0.0
    ttl_ms = pulsar_part(record).ttl_ms
    left = None if ttl_ms is None else round(ttl_ms / 1000 - age, 1)
    return Unfinished(
        query_id=record.query_id,
        epoch=record.epoch,
        attempt=record.attempt,
        state=record.state,
        what=record.label,
        txn=record.txn_id,
        opened_at=record.opened_at,
        age_s=age,
        ttl_left_s=left,
        written_age_s=age_s(record.written_at) or 0.0,
        meaning=meaning_of(record.state, is_over=left is not None and left < 0),
    )


def owing_of(history: History) -> list[Owing]:
    """What a sink still owes, with what it means and the way out."""
    return [_owing(history, record) for record in history.owing]


def _owing(history: History, record: LogRecord) -> Owing:
    assert record.query_id is not None
    assert record.epoch is not None
    query_id, epoch = record.query_id, record.epoch
    give_up = (
        f"`eos recovery decide {record.sink_id} --query {query_id} --epoch {epoch} "
        "--as abandoned --because TEXT`"
    )
    is_passed = False
    if is_streaming(query_id):
        last = history.last_committed_epoch(query_id)
        is_passed = last is not None and last > epoch_number(query_id, epoch)
        meaning = "Nothing of it is readable, and no later epoch may be written before it"
        way_out = (
            f"Start the query again: it writes it. If Spark goes on behind it, set the checkpoint "
            f"back (docs/recovery.md); to go on without its rows: {give_up}"
        )
        if is_passed:
            meaning = f"Its rows are missing: epoch {last} was written without them"
            way_out = f"Write them with a batch key of their own; then, or to do without: {give_up}"
    else:
        meaning = "Not written: nothing of this key is readable"
        way_out = f"Run its job again with the same key; to do without its rows: {give_up}"
    return Owing(
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
    """Whether a person decided what it says."""
    return record.reason is not None and record.reason.kind is ReasonKind.DECIDED


def meaning_of(state: State, *, is_over: bool) -> str:
    """What an unfinished state means, in words."""
    match state:
        case State.OPEN if is_over:
            return "Was being written, and has outlived its time to live: nothing of it is readable"
        case State.OPEN:
            return "Being written, or its driver died while it was; nothing of it is readable"
        case State.PREPARED:
            return "In doubt: decided to commit, not yet known whether the broker did"
        case State.ABORTING:
            return "Decided to abort, not yet known whether the broker did"
    return state.value


def _meaning(is_claimed: bool, unfinished: list[Unfinished], owing: list[Owing]) -> str:
    if not is_claimed:
        return "No driver has ever used it"
    if not unfinished and owing:
        return "What was attempted is not all in the outputs; nothing is in doubt"
    if not unfinished:
        return "Everything is decided and done, as the log has it; `verify` looks at the outputs"
    states = {one.state for one in unfinished}
    if State.PREPARED in states:
        return "A commit is in doubt: a running driver settles it within a minute, `resolve` else"
    if State.ABORTING in states:
        return "An abort is not finished: a running driver does it, `resolve` else"
    return "An epoch is being written; if no driver runs, `resolve` ends it"


def query_label(query_id: str) -> str:
    """A query's name for a narrow table: the head of Spark's uuid."""
    return query_id if query_id == BATCH or not is_streaming(query_id) else query_id[:8]


def render_owing(console: Console, sink_id: str, owing: list[Owing]) -> None:
    """A paragraph for each epoch that was attempted and is not in the topics."""
    for one in owing:
        console.print(
            f"[bold]{escape(sink_id)}[/], {epoch_label(one)}: [yellow]{one.state.value}[/] "
            f"({escape(one.reason)}), {duration(one.written_age_s)} ago.\n   "
            f"{escape(one.meaning)}. {escape(one.way_out)}."
        )


def epoch_label(one: Unfinished | Owing | Decided) -> str:
    """How a sentence names an epoch."""
    return f"epoch {escape(one.epoch)} of {escape(query_label(one.query_id))}"
