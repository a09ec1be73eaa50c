"""Decides whether an epoch runs and as which attempt, and whether a query may use a sink."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Self

from eos.errors import NewLineage, RewoundCheckpoint, UnfinishedEpoch
from eos.protocol._history import History
from eos.protocol._record import LogRecord, epoch_number, is_streaming
from eos.protocol._states import FINAL, UNFINISHED, State


@dataclass(frozen=True)
class Skip:
    """Committed or empty before, or passed by a later epoch of its query.

    ``record`` is None if compaction has dropped it, or the epoch is not in the outputs.
    """

    record: LogRecord | None

    @classmethod
    def of(cls, newest: LogRecord | None) -> Self:
        """Return it for an epoch with this newest record."""
        return cls(newest if newest is not None and newest.state in FINAL else None)

    @property
    def records(self) -> int | None:
        """Number of rows in its outputs; None if it is no longer known."""
        return None if self.record is None else self.record.records


@dataclass(frozen=True)
class Run:
    """Begin attempt number ``attempt``; ``previous``: the newest record of the one before."""

    attempt: int
    previous: LogRecord | None


EpochDecision = Skip | Run


def decide_epoch(history: History, query_id: str, epoch: str) -> EpochDecision:
    """Decide about an epoch without an unfinished attempt.

    Raises:
        UnfinishedEpoch: an earlier epoch of the streaming query was attempted, is not in the
            topics, and must run again.
        ValueError: an attempt of this epoch is unfinished; it has to be ended first.
    """
    newest = history.newest(query_id, epoch)
    if history.must_skip(query_id, epoch):
        return Skip.of(newest)
    # Spark continues with the next epoch only if the last one seems done: an error was swallowed.
    owed = _first_owed(history, query_id, epoch)
    if owed is not None:
        raise unfinished_epoch_error(
            query_id, epoch, str(owed.epoch), str(owed.reason), owed.state, sink_id=history.sink_id
        )
    if newest is None or newest.attempt is None:  # it failed before it opened an attempt
        return Run(1, None)
    if newest.state in UNFINISHED:
        raise ValueError(f"epoch {epoch} of {query_id} has an unfinished attempt")
    return Run(newest.attempt + 1, newest)


def _first_owed(history: History, query_id: str, epoch: str) -> LogRecord | None:
    if not is_streaming(query_id):
        return None
    last, number = _last_committed(history, query_id), epoch_number(query_id, epoch)
    # An epoch that a later one has passed can't be written any more: it is shown, but ignored.
    owed = [
        record
        for record in history.owing
        if record.query_id == query_id
        and record.epoch is not None
        and last < epoch_number(query_id, record.epoch) < number
    ]
    return min(owed, key=lambda record: int(str(record.epoch)), default=None)


def _last_committed(history: History, query_id: str) -> int:
    last = history.last_committed_epoch(query_id)
    return -1 if last is None else last


def unfinished_epoch_error(
    query_id: str, epoch: str, owed: str, why: str, state: State | None, *, sink_id: str
) -> UnfinishedEpoch:
    """Return the error for epoch ``epoch`` when the earlier epoch ``owed`` must run again.

    ``state``: that of ``owed`` in the log; None if the log lacks it: it failed before the claim.
    """
    if state in UNFINISHED:
        way_out = (
            f"The log has epoch {owed} as {state}, so its rows may be readable. End it, and start "
            f"the query again:\n{recovery_command('resolve', sink_id, '--apply')}"
        )
    else:
        without = 'set on_gap="continue" once, and start the query again.'
        if state is not None:
            without = decide_command(sink_id, query_id, owed, "abandoned")
        way_out = (
            f"To write epoch {owed}, stop the query, delete commits/{owed} and "
            f"offsets/{int(owed) + 1} and all later ones from its checkpoint, and start it again "
            "(but not if the function also writes to other sinks that have continued: they would "
            "refuse Spark's new plan). To continue without its rows, and write them later with "
            f'sink.write(rows, epoch="a key"):\n{without}'
        )
    return UnfinishedEpoch(
        f"Epoch {owed} ended in an error ({why}), and epoch {epoch} must not follow it.",
        hint="Does the foreachBatch function catch the sink's errors? Let them end the query. "
        + way_out,
        query_id=query_id,
        epoch=epoch,
    )


def recovery_command(verb: str, *arguments: str) -> str:
    """Return a command of ``eos recovery`` to copy into a shell: names and keys may have spaces."""
    return shlex.join(("eos", "recovery", verb, *arguments))


def decide_command(sink_id: str, query_id: str | None, epoch: str | None, verdict: str) -> str:
    """Return the command with which a person decides about an epoch, for a separate line."""
    which = ("--query", str(query_id), "--epoch", str(epoch))
    return recovery_command("decide", sink_id, *which, "--as", verdict, "--because", "TEXT")


def check_follows(history: History, query_id: str, epoch: str) -> None:
    """Check that ``epoch``, a run's first, follows the last one that the log has of its query.

    Raises:
        UnfinishedEpoch: there are epochs in between.
    """
    # A failure in an earlier run may have left no record: a driver without the claim can't write to
    # the log, and after a swallowed error Spark continues.
    if not is_streaming(query_id) or _first_owed(history, query_id, epoch) is not None:
        return  # a failure with a record: ``decide_epoch`` names it
    last = _last_committed(history, query_id)
    if last < 0 and history.streaming_queries <= {query_id}:
        return  # the sink's first query may have written elsewhere before
    expected, number = last + 1, epoch_number(query_id, epoch)
    while _is_abandoned(history, query_id, expected):
        expected += 1
    if number > expected:
        between = f"{expected}" if number == expected + 1 else f"{expected} to {number - 1}"
        raise UnfinishedEpoch(
            f"The query asks for epoch {epoch}, and the commit log holds nothing of epoch "
            f"{between}: the foreachBatch function has caught their errors, or skips epochs.",
            hint='If it skips epochs (empty ones, for example), set on_gap="continue". If it '
            f"catches the sink's errors: stop the query, delete commits/{expected} and "
            f"offsets/{expected + 1} and all later ones from its checkpoint, let errors end the "
            "query, and start it again.",
            query_id=query_id,
            epoch=epoch,
        )


def check_replayed(
    history: History, query_id: str, epoch: str, planned_at: datetime | None
) -> None:
    """Check that a committed ``epoch`` may be skipped: it still has the rows that were written.

    Args:
        planned_at: when Spark planned the epoch that it asks for; None if unknown.

    Raises:
        RewoundCheckpoint: it was planned again since, or this is not known.
    """
    # Spark writes an epoch's plan to its checkpoint. After a crash it runs the last epoch again by
    # the same plan, with the same time. With an older copy of the checkpoint it plans the number
    # again: the new plan holds rows that arrived since, and are in no topic.
    record = history.newest(query_id, epoch)
    if (
        record is not None
        and planned_at is not None
        and record.state in FINAL
        and _has_same_plan(record, planned_at)
    ):
        return
    last = history.last_committed_epoch(query_id)
    if record is not None and record.state in FINAL:
        what = f"Epoch {epoch} is committed, and Spark has planned it again since"
    else:
        found = "holds nothing of it" if record is None else f"has it as {record.state}"
        what = f"Epoch {epoch} comes before epoch {last}, the last committed one, and the commit "
        what += f"log {found}"
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


def _has_same_plan(record: LogRecord, planned_at: datetime) -> bool:
    if record.planned_at is not None:
        return record.planned_at == planned_at
    # Of an earlier release, or opened by an executor: after the plan, if both clocks are right.
    return record.opened_at is not None and planned_at <= record.opened_at


def _is_abandoned(history: History, query_id: str, number: int) -> bool:
    newest = history.newest(query_id, str(number))
    return newest is not None and newest.state is State.ABANDONED


def check_lineage(
    history: History, query_id: str, epoch: str, on_new_query: Literal["refuse", "continue"]
) -> None:
    """Check that ``query_id`` may write with this sink.

    Raises:
        NewLineage: another streaming query wrote with this sink before, or the log was lost.
    """
    known = history.streaming_queries
    if not is_streaming(query_id) or query_id in known or on_new_query == "continue":
        return
    if known:  # a new query id means a new checkpoint: its epochs are not the old ones
        raise NewLineage(
            f"The sink was written by query {', '.join(sorted(known))}; this is a new query, with "
            "a new checkpoint, and its epochs start again at 0.",
            hint="Start with the old checkpoint; or use a new sink_id; or, to write rows again "
            'that were written before, set on_new_query="continue".',
            query_id=query_id,
        )
    if epoch_number(query_id, epoch) > 0 and not history.has_query(query_id):  # it has written
        raise NewLineage(
            f"The query is at epoch {epoch}, and the commit log holds nothing of it: it may have "
            "been moved, lost, or not be mounted.",
            hint="Give the right commit_log: with an empty one, an epoch that is already readable "
            "could be written again. If the query wrote to something else until now, start it "
            'once with on_new_query="continue".',
            query_id=query_id,
        )


def check_not_renamed(
    other: History, query_id: str, epoch: str, on_new_query: Literal["refuse", "continue"]
) -> None:
    """Check that a renamed sink may write ``epoch`` where the query has written as sink ``other``.

    Raises:
        NewLineage: ``on_new_query`` refuses it; or the epoch is readable there, or may be.
    """
    last = other.last_committed_epoch(query_id)
    # An open one, too: its driver may be alive. After ABORTING it is never committed.
    may_be_committed = any(
        record.query_id == query_id and record.state is not State.ABORTING
        for record in other.unfinished
    )
    if other.must_skip(query_id, epoch):
        state = f"Its epochs up to {last} are done there: {epoch} would be written twice."
    elif may_be_committed:
        state = "An epoch is unfinished there, and may still be committed."
    elif on_new_query == "continue":
        return
    else:
        state = "No epoch is done there." if last is None else f"Its last epoch there is {last}."
    raise NewLineage(
        f"The query has written to this output as sink {other.sink_id}, whose log is in the same "
        f"folder. {state}",
        hint=f'Use sink_id="{other.sink_id}". To change it anyway: start the query once '
        "with the old sink_id, stop it with query.stop() when it has nothing to do, then start it "
        'with the new one and on_new_query="continue". (A second sink of one foreachBatch '
        "function is called after the first one.)",
        query_id=query_id,
    )


def lost_log_error(commit_log: str, trace: str) -> NewLineage:
    """Return the error for a sink whose earlier log is missing; ``trace`` says how it is known."""
    return NewLineage(
        f"This sink has no commit log below {commit_log}, but it has written before: {trace}.",
        hint="The log may have been moved, lost, or not be mounted: with an empty one, keys and "
        "epochs that are already readable would be written again. Give the right commit_log; or "
        'use a new sink_id; or, to start over, start once with on_new_query="continue".',
    )
