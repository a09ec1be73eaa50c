"""Whether an epoch runs, and as which attempt; whether a query may use a sink at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from eos.errors import NewLineage
from eos.transaction import (
    MAX_TTL_MS,
    UNFINISHED,
    History,
    LogRecord,
    ReasonKind,
    epoch_number,
    is_streaming,
)


@dataclass(frozen=True)
class Skip:
    """Committed or empty before; ``record`` is None when housekeeping has dropped it."""

    record: LogRecord | None


@dataclass(frozen=True)
class Run:
    """Open transaction number ``attempt`` of the epoch."""

    attempt: int
    ttl_ms: int


EpochDecision = Skip | Run


def decide_epoch(history: History, query_id: str, epoch: str, *, ttl_ms: int) -> EpochDecision:
    """What to do about an epoch none of whose transactions is unfinished.

    The time to live is ``ttl_ms``, doubled for each attempt of this epoch that expired, and never
    above 24 hours.

    Raises:
        ValueError: a transaction of the epoch is unfinished; it has to be ended first.
    """
    newest = history.newest(query_id, epoch)
    if history.is_done(query_id, epoch):
        return Skip(newest)
    if newest is None:
        return Run(1, ttl_ms)
    if newest.state in UNFINISHED:
        raise ValueError(f"epoch {epoch} of {query_id} has an unfinished transaction")
    assert newest.attempt is not None
    assert newest.ttl_ms is not None
    expired = newest.reason is not None and newest.reason.kind is ReasonKind.EXPIRED
    lived_ms = newest.ttl_ms * 2 if expired else newest.ttl_ms
    return Run(newest.attempt + 1, min(max(ttl_ms, lived_ms), MAX_TTL_MS))


def check_lineage(
    history: History, query_id: str, epoch: str, on_new_query: Literal["refuse", "continue"]
) -> None:
    """Nothing, when ``query_id`` may write with this sink.

    A new query id means a new checkpoint: its epochs start at 0 again and are not the old ones.
    And a query that is past its first epoch has written before: a log that holds nothing of any
    query is then not its own, or not any more.

    Raises:
        NewLineage: another streaming query wrote with this sink before, or the log was lost.
    """
    known = history.streaming_queries
    if not is_streaming(query_id) or query_id in known or on_new_query == "continue":
        return
    if known:
        raise NewLineage(
            f"The sink was written by query {', '.join(sorted(known))}; this is a new query, with "
            "a new checkpoint, and its epochs start again at 0.",
            hint="Start with the old checkpoint; or use a new sink_id; or, if rows that were "
            'written before shall be written again, set on_new_query="continue".',
            query_id=query_id,
        )
    if epoch_number(query_id, epoch) > 0:
        raise NewLineage(
            f"The query is at epoch {epoch}, and the commit log holds nothing of it: it may have "
            "been moved, lost, or not be mounted.",
            hint="Give the right commit_log: with an empty one, an epoch that is readable already "
            "could be written again. If the query wrote to something else until now, start it "
            'once with on_new_query="continue".',
            query_id=query_id,
        )
