"""A handle's position in its log: its known records, its own writes, and whether it is fenced."""

from __future__ import annotations

from typing import Final

from eos._storage import NotDurable
from eos.commit_log import corruption
from eos.commit_log._log_reader import at, read_again, read_history
from eos.commit_log._log_table import LogTable
from eos.commit_log.corruption import (
    CHANGED_HINT,
    errors_as_unreadable,
    has_lost_newest_commit,
    is_lost_race,
    is_refusal,
)
from eos.commit_log.delta_table import Stopwatch
from eos.commit_log.location import Location
from eos.errors import CommitLogError, EosError, Fenced, Retriable
from eos.protocol import LogRecord, State

_TRIES: Final = 3
_DOUBTFUL_APPEND_S: Final = 20.0
_LOST_COMMIT_HINT: Final = (
    "The file of Delta's newest commit is gone, but its checkpoint has all of its content: `eos "
    "recovery log compact {} --apply` writes a new commit."
)


class LogPosition:
    """The end of a log, as its owner knows it. Not thread-safe.

    May be left by any exception between any two lines (Ctrl-C): it first notes that the table may
    hold more than it knows, and later reads the table again before it continues.

    Args:
        table: a handle on the table, which is read here.
        is_writable: whether records will be written, so that the read ones must be durable.
    """

    def __init__(self, table: LogTable, *, is_writable: bool) -> None:
        self.table = table
        self.history, _ = read_history(table)
        """The state at the last read of the table."""
        if is_writable:
            _make_durable(table)  # the last writer may have been killed before it was
        self.files = len(table.files)
        """Number of data files that a read opens."""
        self._is_writable = is_writable
        self._own_runs: set[str] = set()
        self._fenced: str | None = None
        self._is_stale = False

    @property
    def is_fenced(self) -> bool:
        """Whether another driver has appended since this one did."""
        return self._fenced is not None

    def check_not_fenced(self) -> None:
        """Check that no other driver has appended.

        Raises:
            Fenced: another driver has appended.
        """
        if self._fenced is not None:
            raise Fenced(self._fenced, sink_id=self.table.sink_id)

    def adopt(self, run_id: str) -> None:
        """``run_id`` holds the claim, and this is one of its processes: later appends of another
        run fence it."""
        self._own_runs.add(run_id)

    def catch_up_if_moved(self) -> None:
        """Catch up, unless nobody has appended since this handle; raises as ``catch_up``."""
        # To read a log of 400 records takes 50 ms, more than all other steps of a small epoch.
        with errors_as_unreadable(self.table.location, self.table.sink_id):
            is_newest = not self._is_stale and self.table.is_newest()
        if not is_newest:
            self.catch_up()

    def resync(self) -> None:
        """Catch up if an append was interrupted; raises as ``catch_up``."""
        if self._is_stale:
            self.catch_up()

    def write(self, record: LogRecord) -> LogRecord:
        """Write ``record``, which must come next, and add it to the history.

        Raises:
            Fenced, CommitLogError, Retriable: as ``CommitLog.append``.
        """
        self.history.check(record)
        if record.state is State.CLAIMED:
            self._own_runs.add(record.run_id)
        written = self._write(record)
        if self.history.last_seq < written.seq:
            self.history.append(written)
        self._is_stale = False
        self.files += 1
        return written

    def catch_up(self) -> list[LogRecord]:
        """Open a fresh handle, read everything, and compare it with the known state.

        Raises:
            CommitLogError: the log is missing, replaced, rolled back or broken, or can't be read.
        """
        self._is_stale = True
        known = self.history.last
        table, history, records = read_again(self.table, known)
        table.durable = self.table.durable
        if self._is_writable:
            _make_durable(table)  # an interrupted append may not be durable
        seen = known.seq if known else 0
        for record in records:
            if record.seq > seen and self._own_runs and record.run_id not in self._own_runs:
                self._fence(record)
        self.table, self.history, self.files = table, history, len(table.files)
        self._is_stale = False
        return records

    def _write(self, record: LogRecord) -> LogRecord:
        """Commit ``record``; after an error, only the table's content then counts."""
        for _ in range(_TRIES):
            since_begin = Stopwatch()
            cause: Exception | None = None
            self._is_stale = True  # until it is in the history
            try:
                self.table.append(record)
            except NotDurable as error:
                # Written, but maybe not for long; a second try would only hide that.
                raise _outcome_unknown(self.table.location, record, error) from error
            except Exception as error:
                cause = error
            # A process may be stopped for days during an append. By then Delta files of that age,
            # with which a stale commit would conflict, are cleaned up: an old success is not proof.
            if cause is None and since_begin.elapsed_s < _DOUBTFUL_APPEND_S:
                return record
            found = self._find_at(record)
            if found is not None:
                return found
            if cause is None or not corruption.is_lost_race(cause):
                break
        where = self.table.location
        shown = where.cause(cause) if cause else None
        raise _not_written(where, record, cause) from shown

    def _find_at(self, record: LogRecord) -> LogRecord | None:
        """Find the record at the same ``seq``: itself, none (None), or another one."""
        try:
            records = self.catch_up()
            position = self.table.position
        except CommitLogError:
            raise
        except Exception as error:
            raise _outcome_unknown(self.table.location, record, error) from None
        if position < record.seq:
            return None
        # Dropped since: then other runs have appended for long, and it is theirs.
        found = at(records, record.seq)
        if position == record.seq and found is not None and found.equals_except_time(record):
            return found
        last = records[-1]
        if last.run_id in self._own_runs and self._fenced is None:
            raise _taken_by_own_run(self.table.location, record, last) from None
        raise self._fence(last) from None

    def _fence(self, record: LogRecord) -> Fenced:
        if self._fenced is None:
            self._fenced = (
                f"Run {record.run_id} has appended {record.state.value} at seq {record.seq} "
                f"({record.written_at})."
            )
        return Fenced(self._fenced, sink_id=self.table.sink_id)


def _make_durable(table: LogTable) -> None:
    try:
        with errors_as_unreadable(table.location, table.sink_id):
            table.make_all_durable()
    except (NotDurable, ValueError) as error:
        raise CommitLogError(
            f"Commit log {table.location.uri}: its newest record is not safely on the disk: "
            f"{error}.",
            sink_id=table.sink_id,
        ) from error


def _not_written(location: Location, record: LogRecord, cause: Exception | None) -> EosError:
    text = location.clean(cause) if cause else "it took too long"
    is_refused = cause is not None and is_refusal(cause)
    is_race = cause is not None and is_lost_race(cause)
    # A person must check a local folder; an object store may answer again.
    is_temporary = is_race or (location.folder is None and not is_refused)
    advice = (
        CHANGED_HINT
        if is_refused
        else _LOST_COMMIT_HINT.format(record.sink_id)
        if has_lost_newest_commit(location)
        else "Check that the store can be reached, and try again."
        if is_temporary
        else "Check the folder's free space, quota and permissions."
    )
    return (Retriable if is_temporary else CommitLogError)(
        f"Commit log {location.uri}: the {record.state.value} record (seq {record.seq}) "
        f"was not written: {text}.",
        hint=f"The log is as it was. {advice}",
        **record.context,
    )


def _taken_by_own_run(location: Location, record: LogRecord, last: LogRecord) -> Retriable:
    """The error for a record whose ``seq`` another append of the run has, maybe a late one."""
    return Retriable(
        f"Commit log {location.uri}: the {record.state.value} record was not written: another "
        f"append of this run took its place (seq {record.seq}; the log ends with "
        f"{last.state.value} at seq {last.seq}).",
        hint="Refresh the log, and decide again.",
        **record.context,
    )


def _outcome_unknown(location: Location, record: LogRecord, error: Exception) -> CommitLogError:
    return CommitLogError(
        f"Commit log {location.uri}: it is not known whether the {record.state.value} record at "
        f"seq {record.seq} was written for good: {location.clean(error)}.",
        hint="Try again: the next call reads the log first, and continues from there.",
        sink_id=record.sink_id,
    )
