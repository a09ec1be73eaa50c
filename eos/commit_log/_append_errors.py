"""Errors of a failed append: nothing was written, another append was first, or it is unknown."""

from __future__ import annotations

from eos.commit_log.corruption import CHANGED_HINT, is_lost_race, is_refusal
from eos.commit_log.location import Location
from eos.errors import CommitLogError, EosError, Retriable
from eos.protocol import LogRecord


def not_written(location: Location, record: LogRecord, cause: Exception | None) -> EosError:
    """Return the error for a record that is not in the log after a failed append.

    ``CommitLogError`` for a local folder, which a person must check; ``Retriable`` for an object
    store, and if the commit only conflicted with other commits too often.
    """
    text = location.clean(cause) if cause else "it took too long"
    is_refused = cause is not None and is_refusal(cause)
    is_race = cause is not None and is_lost_race(cause)
    is_temporary = is_race or (location.folder is None and not is_refused)
    advice = (
        CHANGED_HINT
        if is_refused
        else "Check that the store can be reached, and try again."
        if is_temporary
        else "Check the folder's free space, quota and permissions."
    )
    return (Retriable if is_temporary else CommitLogError)(
        f"Commit log {location.uri}: the {record.state.value} record (seq {record.seq}) "
        f"was not written: {text}.",
        hint=f"The log is as it was. {advice}",
        sink_id=record.sink_id,
        query_id=record.query_id,
        epoch=record.epoch,
        txn_id=record.txn_id,
    )


def taken_by_own_run(location: Location, record: LogRecord, last: LogRecord) -> Retriable:
    """Return the error for a record whose ``seq`` another record of the same run has: a late append
    of this process, or one of another process."""
    return Retriable(
        f"Commit log {location.uri}: the {record.state.value} record was not written: another "
        f"append of this run took its place (seq {record.seq}; the log ends with "
        f"{last.state.value} at seq {last.seq}).",
        hint="Refresh the log, and decide again.",
        sink_id=record.sink_id,
        query_id=record.query_id,
        epoch=record.epoch,
        txn_id=record.txn_id,
    )


def outcome_unknown(location: Location, record: LogRecord, error: Exception) -> CommitLogError:
    """Return the error for a record of which it is unknown whether it will stay."""
    return CommitLogError(
        f"Commit log {location.uri}: it is not known whether the {record.state.value} record at "
        f"seq {record.seq} was written for good: {location.clean(error)}.",
        hint="Try again: the next call reads the log first, and continues from there.",
        sink_id=record.sink_id,
    )
