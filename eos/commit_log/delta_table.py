"""Creates and opens the Delta table of a log, where the storage keeps two drivers apart."""

from __future__ import annotations

import logging
import os
import time
import uuid
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Barrier
from typing import Final

import pyarrow as pa
from deltalake import (
    CommitProperties,
    DeltaTable,
    PostCommitHookProperties,
    Transaction,
    write_deltalake,
)
from deltalake.exceptions import CommitFailedError

from eos import _storage as storage
from eos.commit_log import corruption
from eos.commit_log.corruption import panics_as_errors
from eos.commit_log.location import Location
from eos.commit_log.schema import SCHEMA
from eos.errors import ConfigurationError, UsedAfterFork

_CONFIGURATION: Final[dict[str, str | None]] = {
    # Statistics of a decimal stop at 2^63 - 1 (deltalake 1.6): a query that uses them misses rows.
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

# The test of a storage: how many writers of one commit, how often, how long they wait for another.
_RIVALS: Final = 4
_ROUNDS: Final = 5
_PATIENCE_S: Final = 60.0
_PROBE_SCHEMA: Final = pa.schema([pa.field("n", pa.int64())])

_log = logging.getLogger(__name__)
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
            # With retries two creators may succeed, and the second replaces the table's id.
            commit_properties=CommitProperties(max_commit_retries=0),
            post_commithook_properties=NO_HOOKS,
        )
    if location.folder is not None:
        storage.sync(location.folder, [corruption.commit_name(0)])
        storage.sync(location.folder.parent, [])


class Stopwatch:
    """Starts when it is created. For a process that may be stopped for days while it runs."""

    def __init__(self) -> None:
        self._started = time.monotonic(), time.time()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start, by the clock that advanced more: one of them stops while the
        machine sleeps."""
        return max(time.monotonic() - self._started[0], time.time() - self._started[1])


@dataclass(frozen=True)
class StorageProbe:
    """Result of the test. ``detail`` describes it; ``is_exclusive`` is False if not tested."""

    is_writable: bool
    is_exclusive: bool
    detail: str


def probe_storage(
    root: str | Path, *, storage_options: Mapping[str, str] | None = None
) -> StorageProbe:
    """Let several writers create the same commit of a small table below ``root`` concurrently, a
    few times, and remove the table again.

    Raises:
        ConfigurationError: a bad URL.
    """
    name = f".eos-probe-{uuid.uuid4().hex[:12]}"
    location = Location(root, storage_options=storage_options)
    return _probe(Location(f"{location.uri.rstrip('/')}/{name}", storage_options=storage_options))


def require_exclusive(location: Location) -> None:
    """Check before a log is created at ``location`` that its storage keeps two drivers apart.

    Raises:
        ConfigurationError: it does not, or can't be written to.
    """
    # The fence of a log is a conditional create: of two drivers that write the same commit, exactly
    # one may succeed. A local file system guarantees that. An S3 server that ignores the header
    # ``If-None-Match`` silently lets both succeed.
    if location.folder is not None:
        return
    probe = _probe(location.sibling(f".eos-probe-{uuid.uuid4().hex[:12]}"))
    if not probe.is_exclusive:
        raise ConfigurationError(
            f"commit_log {location.uri}: {probe.detail}.",
            hint="Use storage with conditional puts, or a file system.",
        )


def _probe(location: Location) -> StorageProbe:
    try:
        with panics_as_errors():
            location.make_folder()
            DeltaTable.create(
                location.uri, schema=_PROBE_SCHEMA, storage_options=location.storage_options
            )
        for number in range(1, _ROUNDS + 1):
            # Concurrently: a later writer would see the commit before it tries its own.
            commit = partial(_commit, location, number, Barrier(_RIVALS))
            with ThreadPoolExecutor(_RIVALS) as pool:
                won = sum(pool.map(commit, range(_RIVALS)))
            if won > 1:
                return StorageProbe(
                    True, False, f"{won} writers all succeeded in creating the same commit"
                )
    except Exception as error:
        return StorageProbe(False, False, f"it can't be written to: {location.clean(error)}")
    finally:
        _remove(location)
    return StorageProbe(
        True, True, f"of {_RIVALS} writers of one commit never more than one succeeded"
    )


def _commit(location: Location, number: int, start: Barrier, rival: int) -> bool:
    """Whether this writer has written commit ``number``."""
    try:
        with panics_as_errors():
            table = DeltaTable(location.uri, storage_options=location.storage_options)
            start.wait(_PATIENCE_S)
            write_deltalake(
                table,
                pa.table({"n": [rival]}, schema=_PROBE_SCHEMA),
                mode="append",
                commit_properties=CommitProperties(
                    app_transactions=[Transaction("eos-probe", number)]
                ),
                post_commithook_properties=NO_HOOKS,
            )
    except CommitFailedError:
        return False
    return True


def _remove(location: Location) -> None:
    try:
        location.remove()
    except Exception as error:
        _log.warning("The test table %s was not removed: %s", location.uri, location.clean(error))
