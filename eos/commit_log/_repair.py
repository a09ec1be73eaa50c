"""Mending what is provably the same: nothing is guessed, and nothing but Delta's own files change.

Records that stand in the table twice, each pair equal in every column: two compactions at once left
them, before compaction had a fence. A checkpoint that is not there, though ``_last_checkpoint``
names it, or that can't be read, while every commit since the one before is whole; and a newest
commit with nothing in it, of which nobody has been told: a power failure leaves either.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
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
    second time. ``lost_checkpoint``: a file that is not there, or broken; ``unwritten``: the newest
    commit's, with nothing in it. What else there is to mend is seen only without these."""

    doubled: int = 0
    lost_checkpoint: str | None = None
    unwritten: str | None = None


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
    found, mended = _examine(location, sink_id), Mendable()
    while found.lost_checkpoint or found.unwritten:
        mended = replace(
            mended,
            lost_checkpoint=mended.lost_checkpoint or found.lost_checkpoint,
            unwritten=mended.unwritten or found.unwritten,
        )
        # The pointer too: it may name what goes, and Delta finds its checkpoints without it.
        for name in filter(None, (damage.POINTER, found.lost_checkpoint, found.unwritten)):
            location.delete(name)
        if location.folder is not None:
            disk.sync(location.folder / LOG_FOLDER, [])
        if mended.unwritten == damage.commit_name(0):
            return mended  # there is no log yet
        found = _examine(location, sink_id)
    if found.doubled:
        compact(location, sink_id, keep_epochs=sys.maxsize)
    return replace(mended, doubled=found.doubled)


def _examine(location: Location, sink_id: str) -> Mendable:
    lost, unwritten = damage.lost_checkpoint(location), damage.unwritten_commit(location)
    if lost is not None or unwritten is not None:
        finding = damage.find(location, None, without=(lost, unwritten))
        if finding is not None and unwritten != damage.commit_name(0):
            raise damage.broken(location, sink_id, finding, None)
        return Mendable(lost_checkpoint=lost, unwritten=unwritten)
    table = LogTable.maybe_open(location, sink_id)
    if table is None:
        raise ConfigurationError(f"there is no commit log {location.uri}.", sink_id=sink_id)
    read_history(table)
    return Mendable(doubled=table.doubled)
