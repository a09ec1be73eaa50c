"""Mending what is provably the same: nothing is guessed, and nothing but Delta's own files change.

Records that stand in the table twice, each pair equal in every column: two compactions at once left
them, before compaction had a fence. A checkpoint that is not there, though ``_last_checkpoint``
names it, or that can't be read, while every commit since the one before is whole; and newest
commits with nothing in them, of which nobody has been told: a power failure leaves either.

Of two who mend at once, one may be stopped for long between any two lines, and others go on
meanwhile: no file is changed or deleted by its name alone.
"""

from __future__ import annotations

import json
import os
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from eos import _disk as disk
from eos.commit_log import corruption
from eos.commit_log._compaction import compact
from eos.commit_log._own_commit import STAGED
from eos.commit_log._reading import read_history
from eos.commit_log._table import LogTable
from eos.commit_log.location import LOG_FOLDER, Location
from eos.errors import ConfigurationError


@dataclass(frozen=True)
class Mendable:
    """What is wrong with a log, and can be mended. ``doubled``: rows that stand in the table a
    second time. ``lost_checkpoint``: a file that is not there, or broken; ``unwritten``: those of
    the newest commits, with nothing in them. What else there is to mend is seen only without."""

    doubled: int = 0
    lost_checkpoint: str | None = None
    unwritten: tuple[str, ...] = ()


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
            unwritten=(*mended.unwritten, *found.unwritten),
        )
        # The pointer too: it may name what goes, and Delta finds its checkpoints without it.
        location.delete(corruption.POINTER)
        if found.lost_checkpoint is not None:
            _take_away(location, found.lost_checkpoint, corruption.is_readable)
        for name in found.unwritten:
            if name != corruption.commit_name(0):
                _fill(location, name)
                continue
            _take_away(
                location, name, lambda there, aside: bool((there.read(aside) or b"").strip(b"\0"))
            )
            return mended  # there is no log yet
        if location.folder is not None:
            disk.sync(location.folder / LOG_FOLDER, [])
        found = _examine(location, sink_id)
    if found.doubled:
        compact(location, sink_id, keep_epochs=sys.maxsize)
    return replace(mended, doubled=found.doubled)


def _fill(location: Location, name: str) -> None:
    """Make an empty commit one that does nothing: in the file that is there, and in no other one
    that has its name when we come to it."""
    if location.folder is None:
        raise ConfigurationError(f"{name} is empty, in a store that writes all or nothing.")
    with (location.folder / name).open("r+b") as file:
        if file.read().strip(b"\0"):
            return  # somebody else has mended it, and gone on
        file.seek(0)
        file.truncate()
        info = {
            "timestamp": time.time_ns() // 1_000_000,
            "operation": "REPAIR",
            "engineInfo": "eos",
        }
        file.write(json.dumps({"commitInfo": info}).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def _take_away(location: Location, name: str, is_good: Callable[[Location, str], bool]) -> None:
    """Delete a file, unless a good one has taken its place since somebody looked."""
    if location.folder is None:
        if not is_good(location, name):
            location.delete(name)
        return
    aside = f"{LOG_FOLDER}/{uuid.uuid4()}{STAGED}"
    with suppress(FileNotFoundError):
        (location.folder / name).rename(location.folder / aside)
        if is_good(location, aside):
            with suppress(FileExistsError):
                os.link(location.folder / aside, location.folder / name)
        location.delete(aside)


def _examine(location: Location, sink_id: str) -> Mendable:
    lost, unwritten = corruption.lost_checkpoint(location), corruption.unwritten_commits(location)
    if lost is not None or unwritten:
        finding = corruption.find(location, None, without=(lost, *unwritten))
        if finding is not None and corruption.commit_name(0) not in unwritten:
            raise corruption.broken(location, sink_id, finding, None)
        return Mendable(lost_checkpoint=lost, unwritten=tuple(unwritten))
    table = LogTable.maybe_open(location, sink_id)
    if table is None:
        emptied = corruption.empty(location, sink_id)
        if emptied is not None:
            raise emptied
        raise ConfigurationError(f"there is no commit log {location.uri}.", sink_id=sink_id)
    read_history(table)
    return Mendable(doubled=table.doubled)
