"""Whether an epoch runs, and as which attempt; whether a query may use a sink at all."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from eos.errors import NewLineage, RewoundCheckpoint, UnfinishedEpoch
from eos.protocol._history import History
from eos.protocol._keys import epoch_number, is_streaming
from eos.protocol._record import LogRecord
from eos.protocol._states import UNFINISHED, State


@dataclass(frozen=True)
class Skip:
    """Committed or empty before; ``record`` is None when compaction has dropped it."""

    record: LogRecord | None

    @property
    def records(self) -> int | None:
        """How many rows its outputs hold; None when that is not known any more."""
        return None if self.record is None else self.record.records


@dataclass(frozen=True)
class Run:
    """Begin attempt number ``attempt`` of the epoch; ``previous``: the newest record of the last
    one, None for the first."""

    attempt: int
    previous: LogRecord | None


EpochDecision = Skip | Run


def decide_epoch(history: History, query_id: str, epoch: str) -> EpochDecision:
    """What to do about an epoch none of whose attempts is unfinished.

    Raises:
        UnfinishedEpoch: an earlier epoch of the streaming query was attempted and is not in the
            topics. Spark goes on to the next one only when it takes the last one for done: the
            sink's error was swallowed on its way.
        ValueError: an attempt of the epoch is unfinished; it has to be ended first.
    """
    newest = history.newest(query_id, epoch)
    if history.is_done(query_id, epoch):
        return Skip(newest)
    left = _left_behind(history, query_id, epoch)
    if left is not None:
        raise unfinished_epoch(
            query_id, epoch, str(left.epoch), str(left.reason), sink_id=history.sink_id
        )
    if newest is None or newest.attempt is None:
        return Run(1, None)
    if newest.state in UNFINISHED:
        raise ValueError(f"epoch {epoch} of {query_id} has an unfinished attempt")
    return Run(newest.attempt + 1, newest)


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


def unfinished_epoch(
    query_id: str, epoch: str, left: str, why: str, *, sink_id: str
) -> UnfinishedEpoch:
    """The error for epoch ``epoch``, asked for while ``left``, an earlier one, is not done."""
    return UnfinishedEpoch(
        f"Epoch {left} ended in an error ({why}), and epoch {epoch} must not follow it.",
        hint="Does the foreachBatch function catch the sink's errors? Let them end the query. To "
        f"write epoch {left}, stop the query, delete commits/{left} and offsets/{int(left) + 1} "
        "and all later ones from its checkpoint, and start it again (not when the function writes "
        "to other sinks as well, that have gone on: they would refuse what Spark plans anew). To "
        f"go on without its rows: eos recovery decide {sink_id} --query {query_id} --epoch {left} "
        '--as abandoned --because "why"; then write them with sink.write(rows, epoch="a key").',
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


def check_replayed(
    history: History, query_id: str, epoch: str, planned_at: datetime | None
) -> None:
    """Nothing, when ``epoch``, which is done, may be skipped: its rows are those that were written.

    Spark plans an epoch, writes the plan to its checkpoint, and runs it. After a crash it runs the
    last one again by the same plan, with the same time. With a checkpoint that was set back to an
    older copy it plans the same numbers anew, and puts into them whatever has come since: rows that
    are in no topic. A record that does not have the plan's time (an earlier release wrote it, or an
    executor) was opened behind the plan, if the clocks of both say so.

    Args:
        planned_at: when Spark planned the epoch that it asks for; None: it does not say.

    Raises:
        RewoundCheckpoint: it was planned once more since, or nobody knows any more.
    """
    record = history.newest(query_id, epoch)
    if record is not None and planned_at is not None and _is_by_plan(record, planned_at):
        return
    last = history.last_committed_epoch(query_id)
    what = (
        f"Epoch {epoch} comes before epoch {last}, the last one that is committed, and the commit "
        "log holds nothing of it"
        if record is None
        else f"Epoch {epoch} is committed, and Spark has planned it once more since"
    )
    raise RewoundCheckpoint(
        f"{what}: the query's checkpoint was set back. The epoch may hold other rows now, which "
        "would be dropped.",
        hint="Start with the newest checkpoint. Without one: if the source cuts the same epochs "
        'as before, set on_rewind="skip" once, and committed epochs are skipped. With any other '
        "source, write the missing rows with sink.write(df, epoch=key), and start after them with "
        'a new checkpoint and on_new_query="continue".',
        query_id=query_id,
        epoch=epoch,
    )


def _is_by_plan(record: LogRecord, planned_at: datetime) -> bool:
    if record.planned_at is not None:
        return record.planned_at == planned_at
    return record.opened_at is not None and planned_at <= record.opened_at


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


def check_not_renamed(
    other: History, query_id: str, epoch: str, on_new_query: Literal["refuse", "continue"]
) -> None:
    """Check that a sink without a record of the query may write ``epoch`` to an output that the
    query has written to as sink ``other``: the sink's id was changed.

    Raises:
        NewLineage: it may not, by ``on_new_query``; or the epoch is readable there, or may be.
    """
    is_open = any(record.query_id == query_id for record in other.unfinished)
    if other.is_done(query_id, epoch):
        state = f"Epoch {epoch} is committed there, and would be written twice."
    elif is_open:
        state = "An epoch is unfinished there, and may be committed."
    elif on_new_query == "continue":
        return
    else:
        state = f"Its last epoch there is {other.last_committed_epoch(query_id)}."
    raise NewLineage(
        f"The query has written to this output as sink {other.sink_id}, whose log is in the same "
        f"folder. {state}",
        hint=f'Use sink_id="{other.sink_id}". To change it anyway: start the query once '
        "with the old sink_id, stop it with query.stop() when it has nothing to do, then start it "
        'with the new one and on_new_query="continue". (A second sink of one foreachBatch '
        "function is called after the first one.)",
        query_id=query_id,
    )


def lost_log(commit_log: str, trace: str) -> NewLineage:
    """The error for a sink without a log whose earlier log has left a ``trace``, in words."""
    return NewLineage(
        f"There is no commit log of this sink below {commit_log}, and the sink has written before: "
        f"{trace}.",
        hint="The log may have been moved, lost, or not be mounted: with an empty one, keys and "
        "epochs that are readable already would be written again. Give the right commit_log; or "
        'use a new sink_id; or, to begin anew, start once with on_new_query="continue".',
    )
