"""A sink's log as an operator sees it: which query stands where, and what is not finished."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from eos.ids import TxnId
from eos.transaction import BATCH, FINAL, History, LogRecord, State, is_streaming
from recovery.report import Facts, age_s


class Claim(Facts):
    """Who may append: the newest CLAIMED."""

    run_id: str
    since: datetime
    age_s: float


class Progress(Facts):
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
    txn: str
    opened_at: datetime
    age_s: float
    ttl_left_s: float
    written_age_s: float
    """Since the newest record of the epoch."""
    at_broker: str | None = None
    """The coordinator's word for it; ``gone`` when it has forgotten it; None: not asked."""
    meaning: str


class SinkView(Facts):
    """One sink. ``last_record_age_s``: how fresh the log is; a live driver keeps it so."""

    sink_id: str
    claim: Claim | None
    last_seq: int
    last_record_age_s: float | None
    service_url: str | None
    receipt_topic: str | None
    progress: list[Progress]
    unfinished: list[Unfinished]
    meaning: str


def view(history: History, records: Iterable[LogRecord]) -> SinkView:
    """The view of a log; ``records`` in the order of ``seq``."""
    claim = history.last_claim
    last = history.last
    unfinished = [_unfinished(record) for record in history.unfinished]
    return SinkView(
        sink_id=history.sink_id,
        claim=_claim(claim) if claim else None,
        last_seq=history.last_seq,
        last_record_age_s=age_s(last.written_at) if last else None,
        service_url=last.service_url if last else None,
        receipt_topic=history.receipt_topic,
        progress=_progress(records),
        unfinished=unfinished,
        meaning=_meaning(claim is not None, unfinished),
    )


def _claim(record: LogRecord) -> Claim:
    assert record.written_at is not None
    return Claim(
        run_id=record.run_id, since=record.written_at, age_s=age_s(record.written_at) or 0.0
    )


def _progress(records: Iterable[LogRecord]) -> list[Progress]:
    last: dict[str, LogRecord] = {}
    epochs: dict[str, set[str]] = {}
    for record in records:
        if record.query_id is None or record.epoch is None:
            continue
        epochs.setdefault(record.query_id, set()).add(record.epoch)
        if record.state in FINAL:
            last[record.query_id] = record
    return [
        Progress(
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
    assert record.ttl_ms is not None
    assert record.opened_at is not None
    age = age_s(record.opened_at) or 0.0
    left = round(record.ttl_ms / 1000 - age, 1)
    return Unfinished(
        query_id=record.query_id,
        epoch=record.epoch,
        attempt=record.attempt,
        state=record.state,
        txn=str(txn_of(record)),
        opened_at=record.opened_at,
        age_s=age,
        ttl_left_s=left,
        written_age_s=age_s(record.written_at) or 0.0,
        meaning=meaning_of(record.state, is_over=left < 0),
    )


def txn_of(record: LogRecord) -> TxnId:
    """The transaction of an epoch's record."""
    assert record.txn is not None
    return record.txn


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


def _meaning(is_claimed: bool, unfinished: list[Unfinished]) -> str:
    if not is_claimed:
        return "No driver has ever used it"
    if not unfinished:
        return "Everything is decided and done"
    states = {one.state for one in unfinished}
    if State.PREPARED in states:
        return "A commit is in doubt: a running driver settles it within a minute, `resolve` else"
    if State.ABORTING in states:
        return "An abort is not finished: a running driver does it, `resolve` else"
    return "An epoch is being written; if no driver runs, `resolve` ends it"


def query_label(query_id: str) -> str:
    """A query's name for a narrow table: the head of Spark's uuid."""
    return query_id if query_id == BATCH or not is_streaming(query_id) else query_id[:8]
