"""Mending what is provably the same: nothing is guessed, and nothing but Delta's own files change.

Records that stand in the table twice, each pair equal in every column: two compactions at once left
them, before compaction had a fence. And a ``_last_checkpoint`` that names a file that is not
there, while every commit since the last checkpoint is whole: a power failure leaves it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from eos import _disk as disk
from eos.commit_log import damage
from eos.commit_log._compaction import compact
from eos.commit_log._reading import read_history
from eos.commit_log._table import LogTable
from eos.commit_log.location import LOG_FOLDER, Location
from eos.errors import ConfigurationError


@dataclass(frozen=True)
class Mendable:
    """What is wrong with a log, and can be mended. ``doubled``: rows that stand in the table a
    second time. ``lost_checkpoint``: the file that the pointer names, and that is not there; what
    else there is to mend is seen only without that pointer."""

    doubled: int = 0
    lost_checkpoint: str | None = None


def examine(
    root: str | Path, sink_id: str, *, storage_options: Mapping[str, str] | None = None
) -> Mendable:
    """Look for what can be mended; changes nothing.

    Raises:
        CommitLogError: the log is broken in another way, or can't be read; names the file.
        ConfigurationError: there is no such log, or a bad sink id or path.
    """
    return _examine(Location(root, sink_id, storage_options), sink_id)


def mend(
    root: str | Path, sink_id: str, *, storage_options: Mapping[str, str] | None = None
) -> Mendable:
    """Mend it, and read it again. Claims nothing; what was mended.

    Raises:
        CommitLogError, ConfigurationError: as ``examine``.
        Retriable: somebody else compacts it.
    """
    location = Location(root, sink_id, storage_options)
    found = _examine(location, sink_id)
    doubled = found.doubled
    if found.lost_checkpoint is not None:
        location.delete(damage.POINTER)
        if location.folder is not None:
            disk.sync(location.folder / LOG_FOLDER, [])
        doubled = _examine(location, sink_id).doubled
    if doubled:
        compact(location, sink_id, keep_epochs=sys.maxsize)
    return Mendable(doubled, found.lost_checkpoint)


def _examine(location: Location, sink_id: str) -> Mendable:
    lost = damage.lost_checkpoint(location)
    if lost is not None:
        finding = damage.find(location, None)
        if finding is not None:
            raise damage.broken(location, sink_id, finding, None)
        return Mendable(lost_checkpoint=lost)
    table = LogTable.maybe_open(location, sink_id)
    if table is None:
        raise ConfigurationError(f"there is no commit log {location.uri}.", sink_id=sink_id)
    read_history(table)
    return Mendable(doubled=table.doubled)
