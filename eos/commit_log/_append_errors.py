"""What a failed append means: nothing was written, somebody else was first, or it is not known."""

from __future__ import annotations

from eos.commit_log.corruption import CHANGED_HINT, is_lost_race, is_refusal
from eos.commit_log.location import Location
from eos.errors import CommitLogError, EosError, Retriable
from eos.protocol import LogRecord


def not_written(location: Location, record: LogRecord, cause: Exception | None) -> EosError:
    """The error for a record that was looked for after a failed append and is not there.

    ``CommitLogError`` for a local folder, which a person has to look at; ``Retriable`` for an
    object store and for commits that only met other commits too often.
    """
    text = location.clean(cause) if cause else "it took too long"
    is_refused = cause is not None and is_refusal(cause)
    is_race = cause is not None and is_lost_race(cause)
    may_pass = is_race or (location.folder is None and not is_refused)
    advice = (
        CHANGED_HINT
        if is_refused
        else "Check that the store can be reached, and try again."
        if may_pass
        else "Check the folder's free space, quota and permissions."
    )
    return (Retriable if may_pass else CommitLogError)(
        f"commit log {location.uri}: the {record.state.value} record (seq {record.seq}) "
        f"was not written: {text}.",
        hint=f"The log is as it was. {advice}",
        sink_id=record.sink_id,
        query_id=record.query_id,
        epoch=record.epoch,
        txn_id=record.txn_id,
    )


def overtaken(location: Location, record: LogRecord, last: LogRecord) -> Retriable:
    """The error for a record whose place another one of the same run has taken: a late one of this
    process, or one of another process."""
    return Retriable(
        f"commit log {location.uri}: the {record.state.value} record was not written: another "
        f"append of this run took its place (seq {record.seq}; the log ends with "
        f"{last.state.value} at seq {last.seq}).",
        hint="Decide again by what the log says now.",
        sink_id=record.sink_id,
        query_id=record.query_id,
        epoch=record.epoch,
        txn_id=record.txn_id,
    )


def unsettled(location: Location, record: LogRecord, error: Exception) -> CommitLogError:
    """The error for a record of which it is not known whether it will stay."""
    return CommitLogError(
        f"commit log {location.uri}: it is not known whether the {record.state.value} record at "
        f"seq {record.seq} was written for good: {location.clean(error)}.",
        hint="Try again: the next call reads the log first, and goes on from what it says.",
        sink_id=record.sink_id,
    )
