"""Keeping a log small: retention, compaction, checkpoints. Never in the way of an append.

Works on a handle of its own, and its commits carry no append's identifier: they conflict with
nobody's append, and of two housekeepers at once the second one's commit fails, harmlessly.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
from deltalake import CommitProperties, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError

from eos.commit_log import disk
from eos.commit_log.damage import panics_as_errors
from eos.commit_log.delta_table import NO_HOOKS
from eos.commit_log.location import LOG_FOLDER, Location
from eos.commit_log.reading import read_history
from eos.commit_log.schema import to_table
from eos.commit_log.table import LogTable
from eos.errors import CommitLogError, Retriable
from eos.transaction import Thinning, thin

KEEP_EPOCHS = 100
"""How many of the newest finished epochs a log keeps in full, unless it is told otherwise."""


@dataclass(frozen=True)
class CompactionReport:
    """What one round of housekeeping did. ``rows`` are records, ``files`` those that a read opens,
    ``bytes`` their sizes."""

    rows_before: int
    rows_after: int
    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int


def keep_house(
    location: Location, sink_id: str, *, keep_epochs: int = KEEP_EPOCHS
) -> CompactionReport:
    """Drop what nothing depends on, join small files, delete long replaced ones, checkpoint.

    Raises:
        CommitLogError: the log is broken, or gone; nothing was deleted.
        Retriable: another housekeeper was at work.
        Exception: something failed; the table is as good as before.
    """
    table = LogTable.maybe_open(location, sink_id)
    if table is None:
        raise CommitLogError(f"commit log {location.uri}: it is gone.", sink_id=sink_id)
    _, records = read_history(table)
    before = table.size
    thinning = thin(records, keep_epochs=keep_epochs, horizon=table.horizon)
    with panics_as_errors(), _alone(table):
        start = table.delta.version()
        if thinning is None:
            table.delta.optimize.compact()
        else:
            _replace(table, thinning)
        # Before anything is deleted: the replaced files still hold every record.
        _, left = read_history(table)
        if thinning is not None and [r.seq for r in left[: len(thinning.records)]] != [
            r.seq for r in thinning.records
        ]:
            raise table.broken("housekeeping has not left what it should have")
        _clean_up(table, start)
    after = table.size
    return CompactionReport(len(records), len(left), before[0], after[0], before[1], after[1])


@contextmanager
def _alone(table: LogTable) -> Iterator[None]:
    try:
        yield
    except CommitFailedError as error:
        raise Retriable(
            f"commit log {table.location.uri}: somebody else keeps house in it: "
            f"{table.location.clean(error)}.",
            hint="The log is as it was. Try again.",
            sink_id=table.sink_id,
        ) from None


def _replace(table: LogTable, thinning: Thinning) -> None:
    """One file with what stays in the place of all files that the handle sees, and the horizon.

    Appends that came meanwhile are in files of their own, and stay.
    """
    numbers = (thinning.horizon, thinning.kept)
    write_deltalake(
        table.delta,
        to_table(*thinning.records),
        mode="overwrite",
        commit_properties=CommitProperties(
            app_transactions=[
                Transaction(name, number)
                for name, number in zip(table.retention_ids, numbers, strict=True)
            ]
        ),
        post_commithook_properties=NO_HOOKS,
    )
    table.delta.update_incremental()


def _clean_up(table: LogTable, start: int) -> None:
    """Make what was committed since version ``start`` durable, delete files that were replaced
    long ago, write a checkpoint, and forget the commits long before it."""
    _sync(table, start)
    # By the folder's listing: checkpoints forget the names of files that were replaced long ago.
    table.delta.vacuum(dry_run=False, full=True)
    table.delta.create_checkpoint()
    _sync(table, start)
    table.delta.cleanup_metadata()


def _sync(table: LogTable, start: int) -> None:
    if table.location.folder is None:
        return
    logs = [name for name in table.location.names(LOG_FOLDER) if name >= f"{start:020}"]
    paths = pa.table(table.delta.get_add_actions()).column("path").to_pylist()
    disk.sync(table.location.folder, [*paths, *(f"{LOG_FOLDER}/{name}" for name in logs)])
