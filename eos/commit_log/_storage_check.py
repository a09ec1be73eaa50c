"""Tests whether two drivers can be kept apart on a storage.

The fence of a commit log is a conditional create: of two drivers that want to write the same
commit, exactly one may succeed. A file system guarantees that, and so does an S3 API with
conditional put. A server that ignores the header ``If-None-Match`` silently lets both succeed.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Barrier
from typing import Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError

from eos.commit_log.corruption import panics_as_errors
from eos.commit_log.delta_table import NO_HOOKS
from eos.commit_log.location import Location
from eos.errors import ConfigurationError

_log = logging.getLogger(__name__)
_RIVALS: Final = 4
_ROUNDS: Final = 5
_PATIENCE_S: Final = 60.0
_SCHEMA: Final = pa.schema([pa.field("n", pa.int64())])


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

    A local file system does; it is not tested.

    Raises:
        ConfigurationError: it does not, or can't be written to.
    """
    if location.folder is not None:
        return
    probe = _probe(location.sibling(f".eos-probe-{uuid.uuid4().hex[:12]}"))
    if not probe.is_exclusive:
        raise ConfigurationError(
            f"commit_log {location.uri}: {probe.detail}.",
            hint="Use storage with conditional puts, or a file system (docs/commit-log.md).",
        )


def _probe(location: Location) -> StorageProbe:
    try:
        with panics_as_errors():
            location.make_folder()
            DeltaTable.create(
                location.uri, schema=_SCHEMA, storage_options=location.storage_options
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
                pa.table({"n": [rival]}, schema=_SCHEMA),
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
