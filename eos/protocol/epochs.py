"""Whether an epoch runs, and as which attempt; whether a query may use a sink at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from eos.errors import NewLineage, UnfinishedEpoch
from eos.protocol.checks import MAX_TTL_MS
from eos.protocol.history import History
from eos.protocol.keys import epoch_number, is_streaming
from eos.protocol.reasons import ReasonKind
from eos.protocol.record import LogRecord
from eos.protocol.states import UNFINISHED, State


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
        UnfinishedEpoch: an earlier epoch of the streaming query was attempted and is not in the
            topics. Spark goes on to the next one only when it takes the last one for done: the
            sink's error was swallowed on its way.
        ValueError: a transaction of the epoch is unfinished; it has to be ended first.
    """
    newest = history.newest(query_id, epoch)
    if history.is_done(query_id, epoch):
        return Skip(newest)
    left = _left_behind(history, query_id, epoch)
    if left is not None:
        raise unfinished_epoch(query_id, epoch, str(left.epoch), str(left.reason))
    if newest is None or newest.txn is None:
        return Run(1, ttl_ms)
    if newest.state in UNFINISHED:
        raise ValueError(f"epoch {epoch} of {query_id} has an unfinished transaction")
    assert newest.attempt is not None
    assert newest.ttl_ms is not None
    expired = newest.reason is not None and newest.reason.kind is ReasonKind.EXPIRED
    lived_ms = newest.ttl_ms * 2 if expired else newest.ttl_ms
    return Run(newest.attempt + 1, min(max(ttl_ms, lived_ms), MAX_TTL_MS))


def _left_behind(history: History, query_id: str, epoch: str) -> LogRecord | None:
    """The first epoch before ``epoch`` that its query still owes."""
    if not is_streaming(query_id):
        return None
    last = history.last_committed_epoch(query_id)
    number = epoch_number(query_id, epoch)
    owed = [
        record
        for record in history.owing
        if record.query_id == query_id
        and record.epoch is not None
        # What a later epoch has passed by can't be written any more: it is shown, and no obstacle.
        and (-1 if last is None else last) < epoch_number(query_id, record.epoch) < number
    ]
    return min(owed, key=lambda record: int(str(record.epoch)), default=None)


def unfinished_epoch(query_id: str, epoch: str, left: str, why: str) -> UnfinishedEpoch:
    """The error for epoch ``epoch``, asked for while ``left``, an earlier one, is not done."""
    return UnfinishedEpoch(
        f"Epoch {left} ended in an error ({why}), and epoch {epoch} must not follow it.",
        hint="Does the foreachBatch function catch the sink's errors? Let them end the query. To "
        f"write epoch {left}, stop the query, delete commits/{left} and offsets/{int(left) + 1} "
        "and all later ones from its checkpoint, and start it again. To go on without its rows: "
        f"eos-recovery decide SINK --query {query_id} --epoch {left} --as abandoned --because ...",
        query_id=query_id,
        epoch=epoch,
    )


def check_follows(history: History, query_id: str, epoch: str) -> None:
    """Nothing, when ``epoch`` follows the last one that the log has of its streaming query.

    For the first epoch of a life. Within one the caller knows by itself what failed; what failed in
    a life before may have left no record: a driver that lost its claim, or never got as far as
    one, can't write to the log, and a swallowed error makes Spark go on all the same.

    Raises:
        UnfinishedEpoch: epochs lie between.
    """
    if not is_streaming(query_id) or _left_behind(history, query_id, epoch) is not None:
        return  # what failed and left a record, ``decide_epoch`` names
    last = history.last_committed_epoch(query_id)
    if last is None and history.streaming_queries <= {query_id}:
        return  # the sink's first query may have written elsewhere before
    expected, number = (-1 if last is None else last) + 1, epoch_number(query_id, epoch)
    while _is_given_up(history, query_id, expected):
        expected += 1
    if number > expected:
        between = f"{expected}" if number == expected + 1 else f"{expected} to {number - 1}"
        raise UnfinishedEpoch(
            f"The query asks for epoch {epoch}, and the commit log holds nothing of epoch "
            f"{between}: the foreachBatch function has caught their errors, or leaves epochs out.",
            hint='If it leaves epochs out (empty ones, for example), set on_gap="continue". If it '
            f"catches the sink's errors: stop the query, delete commits/{expected} and "
            f"offsets/{expected + 1} and all later ones from its checkpoint, let errors end the "
            "query, and start it again.",
            query_id=query_id,
            epoch=epoch,
        )


def _is_given_up(history: History, query_id: str, number: int) -> bool:
    newest = history.newest(query_id, str(number))
    return newest is not None and newest.state is State.ABANDONED


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


def lost_log(commit_log: str, receipt_topic: str) -> NewLineage:
    """The error for a sink without a log whose earlier log has left ``receipt_topic`` behind."""
    return NewLineage(
        f"There is no commit log of this sink below {commit_log}, and the sink has written before: "
        f"{receipt_topic} is the receipt topic of its log.",
        hint="The log may have been moved, lost, or not be mounted: with an empty one, keys and "
        "epochs that are readable already would be written again. Give the right commit_log; or "
        'use a new sink_id; or, to begin anew, start once with on_new_query="continue".',
    )
