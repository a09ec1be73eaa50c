"""Creates and opens the Delta table of a log; measures the age of a view of it.

Two facts of ``deltalake`` 1.6 shape the code:

- ``DeltaTable.create`` retries its commit, so two concurrent creators may both succeed, and the
  second replaces the table's id. Without retries only one does.
- Statistics of a decimal stop at 2^63 - 1, and a query that uses them would miss rows: the table
  keeps statistics for ``seq`` only.
"""

from __future__ import annotations

import os
import time
from typing import Final

from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties

from eos import _disk as disk
from eos.commit_log import corruption
from eos.commit_log.corruption import panics_as_errors
from eos.commit_log.location import Location
from eos.commit_log.schema import SCHEMA
from eos.errors import UsedAfterFork

_CONFIGURATION: Final[dict[str, str | None]] = {
    "delta.dataSkippingStatsColumns": "seq",
    # For readers with an older view; ten minutes are long for so small a table. Until then each
    # replaced file takes space and a line in every checkpoint: with an hour, a stream of 23 epochs
    # a minute had 4,545 files of 68 MB (measured).
    "delta.deletedFileRetentionDuration": "interval 10 minutes",
    # Commits older than the last checkpoint. Each append lists their folder (`make bench-log` shows
    # the cost), so few of them are kept: several times _DOUBTFUL_APPEND_S of the log.
    "delta.logRetentionDuration": "interval 2 minutes",
}
NO_HOOKS: Final = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
"""Checkpoints and clean-up belong to compaction: their failure must not fail an append."""


_user: int | None = None


def check_not_forked() -> None:
    """Check that Delta's library works here: its threads do not survive a fork (it panics).

    Raises:
        UsedAfterFork: this is a fork of a process that has used it.
    """
    global _user
    _user = _user or os.getpid()
    if _user != os.getpid():
        raise UsedAfterFork(
            f"This process, {os.getpid()}, is a fork of process {_user}, which has used a commit "
            "log: Delta's library does not work here."
        )


def open_table(location: Location) -> DeltaTable:
    """Open a handle on the table.

    Raises:
        TableNotFoundError: Delta finds no table there.
    """
    return DeltaTable(location.uri, storage_options=location.storage_options)


def create_table(location: Location) -> None:
    """Create an empty log, durably; of several concurrent creators only one succeeds."""
    with panics_as_errors():
        DeltaTable.create(
            location.uri,
            schema=SCHEMA,
            mode="error",
            name=None,
            configuration=_CONFIGURATION,
            storage_options=location.storage_options,
            commit_properties=CommitProperties(max_commit_retries=0),
            post_commithook_properties=NO_HOOKS,
        )
    if location.folder is not None:
        disk.sync(location.folder, [corruption.commit_name(0)])
        disk.sync(location.folder.parent, [])


class Stopwatch:
    """Starts when it is created. For a process that may be stopped for days while it runs."""

    def __init__(self) -> None:
        self._started = time.monotonic(), time.time()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start, by the clock that advanced more: one of them stops while the
        machine sleeps."""
        return max(time.monotonic() - self._started[0], time.time() - self._started[1])
