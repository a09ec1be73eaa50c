"""Keeps a log small: drops old records, joins files, writes checkpoints. Never delays an append.

It rewrites all records in one commit, which carries the number of the round under its own
transaction identifier: it never conflicts with an append, and of two compactions that have read the
same round one succeeds. A process may be stopped for days between any two lines.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError

from eos import _storage as storage
from eos.commit_log import _own_commit as own_commit
from eos.commit_log._log_reader import read_again, read_history
from eos.commit_log._log_table import LogTable
from eos.commit_log.corruption import (
    CHANGED_HINT,
    LostRace,
    commit_actions,
    is_refusal,
    panics_as_errors,
    writers,
)
from eos.commit_log.delta_table import NO_HOOKS, Stopwatch
from eos.commit_log.location import LOG_FOLDER, Location
from eos.commit_log.schema import to_table
from eos.errors import CommitLogError, Retriable
from eos.protocol import LogRecord, ThinnedLog, thin

KEEP_EPOCHS = 100
"""Default number of the newest finished epochs that a log keeps in full."""

# Half the time after which another compaction cleans up commits.
_DOUBTFUL_S: Final = 60.0

_DATA: Final = ".parquet"

# Tries of the commit, against a driver whose appends take a few ms: Delta's 15 are too few.
_TRIES: Final = 200


@dataclass(frozen=True)
class CompactionReport:
    """Result of one round of compaction. ``rows`` are records, ``files`` those that a read opens,
    ``bytes`` their sizes."""

    rows_before: int
    rows_after: int
    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int


def compact(
    location: Location,
    sink_id: str,
    *,
    keep_epochs: int = KEEP_EPOCHS,
    run_id: str | None = None,
) -> CompactionReport:
    """Drop records that nothing depends on, join small files, delete old replaced ones, checkpoint.

    Args:
        keep_epochs: number of the newest finished epochs that stay in full.
        run_id: compact only while this run holds the newest claim; None: for any run.

    Raises:
        CommitLogError: the log is broken, or missing; nothing was deleted.
        Retriable: another compaction was running, another run has claimed the sink, or it took
            too long; nothing was deleted.
        Exception: it failed; the table is as good as before.
    """
    since_read = Stopwatch()
    table = _open(location, sink_id)
    history, records = read_history(table)
    claim = history.last_claim
    if run_id is not None and (claim is None or claim.run_id != run_id):
        raise _retry_later(table, "another run has claimed the sink")
    # A file is deleted only if a handle that was opened *after* this listing does not need it, and
    # after a commit of this round, with which a sleeping round conflicts when it wakes up.
    files, start = table.files, table.delta.version()
    thinning = thin(records, keep_epochs=keep_epochs, horizon=table.horizon)
    with panics_as_errors():
        # From the folder's listing: checkpoints no longer name files that were replaced long ago.
        old = table.delta.vacuum(dry_run=True, full=True)
        # One of these may belong to a round that sleeps before its commit: this one commits first.
        has_old_data = any(name.endswith(_DATA) for name in old)
        if thinning is not None or len(files) > 1 or table.doubled:
            fresh, left = _rewrite(table, records, thinning, since_read)
        elif has_old_data:
            fresh, left = _commit_empty_round(table, records, since_read)
        else:
            fresh, left = table, records
        fresh = _clean_up(fresh, start, old)
    return CompactionReport(
        rows_before=len(records) + table.doubled,
        rows_after=len(left),
        files_before=len(files),
        files_after=len(fresh.files),
        bytes_before=sum(files.values()),
        bytes_after=sum(fresh.files.values()),
    )


def _open(location: Location, sink_id: str) -> LogTable:
    table = LogTable.open_if_exists(location, sink_id)
    if table is None:
        raise CommitLogError(f"Commit log {location.uri} no longer exists.", sink_id=sink_id)
    return table


def _rewrite(
    table: LogTable, records: list[LogRecord], thinning: ThinnedLog | None, since_read: Stopwatch
) -> tuple[LogTable, list[LogRecord]]:
    """Replace all files that the handle sees by one; concurrent appends are in others, and stay."""
    staying = list(thinning.records) if thinning else records
    kept = (thinning.horizon, thinning.kept) if thinning else (table.horizon, table.kept)

    def write(numbers: Mapping[str, int]) -> None:
        if _rewrite_alone(table, staying, numbers):
            return
        write_deltalake(
            table.delta,
            to_table(*staying),
            mode="overwrite",
            schema_mode=table.schema_mode(),
            commit_properties=_properties(numbers),
            post_commithook_properties=NO_HOOKS,
        )

    return _commit(table, records, staying, kept, since_read, write)


def _rewrite_alone(
    table: LogTable, staying: Sequence[LogRecord], numbers: Mapping[str, int]
) -> bool:
    """Commit the round directly, following only appends; False: Delta has to commit it."""
    # Delta does not treat a concurrent ``optimize`` of the files as a conflict: all rows would be
    # there twice, also the dropped ones (measured).
    folder = table.location.folder
    is_fixed = table.delta.metadata().configuration.get("delta.appendOnly") == "true"
    if folder is None or is_fixed or not table.is_plain or table.schema_mode() is not None:
        return False

    def may_precede(version: int) -> bool:
        try:
            actions = commit_actions(table.location, version)
        except ValueError as error:
            raise LostRace(str(error)) from None
        if actions is None:
            return False  # the name can't be given here
        if writers(actions).intersection(table.compaction_ids):
            raise LostRace("another process compacts it")
        if table.app_id not in writers(actions):
            raise LostRace(f"another process has written version {version}")
        return True

    return own_commit.rewrite(
        folder,
        table.version + 1,
        to_table(*staying),
        replaced=table.files,
        txns=numbers,
        may_precede=may_precede,
    )


def _commit_empty_round(
    table: LogTable, records: list[LogRecord], since_read: Stopwatch
) -> tuple[LogTable, list[LogRecord]]:
    # It rewrites nothing, but conflicts with a process that sleeps in the same round.

    def write(numbers: Mapping[str, int]) -> None:
        table.delta.create_write_transaction(
            [],
            mode="append",
            schema=table.delta.schema(),
            commit_properties=_properties(numbers),
            post_commithook_properties=NO_HOOKS,
        )

    return _commit(table, records, records, (table.horizon, table.kept), since_read, write)


def _commit(
    table: LogTable,
    records: list[LogRecord],
    staying: list[LogRecord],
    kept: tuple[int, int],
    since_read: Stopwatch,
    write: Callable[[Mapping[str, int]], None],
) -> tuple[LogTable, list[LogRecord]]:
    """Commit the next round, which leaves ``staying``; return a fresh handle and its records."""
    round_ = table.rounds + 1
    numbers = dict(zip(table.compaction_ids, (round_, *kept), strict=True))
    # The commits with which an old read would conflict may have been cleaned up since.
    _check_time(table, since_read)
    try:
        write(numbers)
    except LostRace as error:
        raise _retry_later(table, str(error)) from None
    except Exception as error:
        fresh, _, _ = read_again(table, records[-1] if records else None)
        if is_refusal(error):
            raise CommitLogError(
                f"Commit log {table.location.uri}: no compaction: {table.location.clean(error)}.",
                hint=f"The log is complete, but grows. {CHANGED_HINT}",
                sink_id=table.sink_id,
            ) from None
        # If a conflicting commit has been cleaned up since, Delta raises another error.
        if isinstance(error, CommitFailedError) or fresh.rounds >= round_:
            text = table.location.clean(error).rstrip(".")
            raise _retry_later(table, f"another process compacts it: {text}") from None
        raise
    _check_time(table, since_read)
    # Before anything is deleted: the replaced files still hold every record.
    fresh, _, left = read_again(table, records[-1] if records else None)
    if fresh.rounds != round_:
        raise _retry_later(table, "another process compacts it")
    if [record.seq for record in left[: len(staying)]] != [record.seq for record in staying]:
        raise fresh.broken("compaction has left other records than it should have")
    return fresh, left


def _properties(numbers: Mapping[str, int]) -> CommitProperties:
    return CommitProperties(
        app_transactions=[Transaction(name, number) for name, number in numbers.items()],
        max_commit_retries=_TRIES,
    )


def _check_time(table: LogTable, since_read: Stopwatch) -> None:
    if since_read.elapsed_s >= _DOUBTFUL_S:
        raise _retry_later(table, f"it was read {since_read.elapsed_s:.0f} s ago")


def _retry_later(table: LogTable, why: str) -> Retriable:
    return Retriable(
        f"Commit log {table.location.uri}: no compaction now: {why}.",
        hint="The log is complete. Try again.",
        sink_id=table.sink_id,
    )


def _clean_up(table: LogTable, start: int, old: Sequence[str]) -> LogTable:
    """Make commits since ``start`` durable, delete unneeded files among ``old``, checkpoint."""
    fresh = _sync(table, start)
    for name in set(old) - set(fresh.files):
        is_data = name.endswith(_DATA) and not _belongs_to_append(fresh, name)
        if is_data or name.endswith(own_commit.STAGED):
            fresh.location.delete(name)
    fresh.write_checkpoint()
    fresh.delta.cleanup_metadata()
    return fresh


def _belongs_to_append(table: LogTable, name: str) -> bool:
    # An append that was stopped midway may still continue.
    content = table.location.read(name)
    try:
        column = pq.ParquetFile(io.BytesIO(content or b"")).read(["seq"], use_threads=False)["seq"]
    except (pa.ArrowException, OSError, ValueError, KeyError):
        return False
    return any(seq > table.position for seq in column.to_pylist())


def _sync(table: LogTable, start: int) -> LogTable:
    """Flush all files since version ``start``; return a handle whose data files are flushed."""
    logs = [name for name in table.location.names(LOG_FOLDER) if name >= f"{start:020}"]
    fresh = _open(table.location, table.sink_id)
    if fresh.location.folder is not None:
        names = (f"{LOG_FOLDER}/{name}" for name in logs)
        storage.sync(fresh.location.folder, [*fresh.files, *names])
    return fresh
