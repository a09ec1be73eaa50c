"""Repairs damage that provably loses nothing: it never guesses, and changes only Delta's own files.

Of two concurrent repairs, one may be stopped for long between any two lines while others continue:
no file is changed or deleted on the basis of its name alone.
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

from eos import _storage as storage
from eos.commit_log import corruption
from eos.commit_log._compaction import compact
from eos.commit_log._log_reader import read_history
from eos.commit_log._log_table import LogTable
from eos.commit_log._own_commit import STAGED
from eos.commit_log.corruption import errors_as_unreadable
from eos.commit_log.location import LOG_FOLDER, Location
from eos.errors import ConfigurationError


@dataclass(frozen=True)
class RepairableDamage:
    """Damage of a log that can be repaired. Without the latter two, other damage is found too."""

    doubled: int = 0
    """Rows that are there twice, from concurrent compactions before compaction had a fence."""
    lost_checkpoint: str | None = None
    """A file that ``_last_checkpoint`` names, missing or broken after a power failure."""
    unwritten: tuple[str, ...] = ()
    """The files of empty newest commits, after a power failure: their writers had no success."""


def examine(
    root: str | Path, sink_id: str, *, storage_options: Mapping[str, str] | None = None
) -> RepairableDamage:
    """Find damage that can be repaired; changes nothing.

    Raises:
        CommitLogError: the log is broken in another way, or can't be read; names the file.
        ConfigurationError: the log does not exist, or a bad sink id or path.
    """
    location = Location(root, sink_id, storage_options)
    with errors_as_unreadable(location, sink_id):
        return _examine(location, sink_id)


def repair_log(
    root: str | Path, sink_id: str, *, storage_options: Mapping[str, str] | None = None
) -> RepairableDamage:
    """Repair the log, and read it again. Claims nothing. Returns the repaired damage.

    Raises:
        CommitLogError, ConfigurationError: as ``examine``.
        Retriable: another process is compacting it.
    """
    location = Location(root, sink_id, storage_options)
    with errors_as_unreadable(location, sink_id):
        return _repair(location, sink_id)


def _repair(location: Location, sink_id: str) -> RepairableDamage:
    found, repaired = _examine(location, sink_id), RepairableDamage()
    while found.lost_checkpoint or found.unwritten:
        repaired = replace(
            repaired,
            lost_checkpoint=repaired.lost_checkpoint or found.lost_checkpoint,
            unwritten=(*repaired.unwritten, *found.unwritten),
        )
        # The pointer too: it may name the file, and Delta finds its checkpoints without it.
        location.delete(corruption.POINTER)
        if found.lost_checkpoint is not None:
            _delete_unless_intact(location, found.lost_checkpoint, corruption.is_readable)
        for name in found.unwritten:
            if name != corruption.commit_name(0):
                _fill(location, name)
                continue
            _delete_unless_intact(
                location, name, lambda there, aside: bool((there.read(aside) or b"").strip(b"\0"))
            )
            return repaired  # the log does not exist yet
        if location.folder is not None:
            storage.sync(location.folder / LOG_FOLDER, [])
        found = _examine(location, sink_id)
    if found.doubled:
        compact(location, sink_id, keep_epochs=sys.maxsize)
    return replace(repaired, doubled=found.doubled)


def _fill(location: Location, name: str) -> None:
    """Make an empty commit one that does nothing. Changes the file only if it is still empty."""
    if location.folder is None:
        raise ConfigurationError(f"{name} is empty, but this store writes files all or nothing.")
    with (location.folder / name).open("r+b") as file:
        if file.read().strip(b"\0"):
            return  # another process has repaired it, and continued
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


def _delete_unless_intact(
    location: Location, name: str, is_good: Callable[[Location, str], bool]
) -> None:
    """Delete a file, unless an intact one has replaced it since the examination."""
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


def _examine(location: Location, sink_id: str) -> RepairableDamage:
    lost, unwritten = corruption.lost_checkpoint(location), corruption.unwritten_commits(location)
    if lost is not None or unwritten:
        finding = corruption.find(location, None, without=(lost, *unwritten))
        if finding is not None and corruption.commit_name(0) not in unwritten:
            raise corruption.broken(location, sink_id, finding, None)
        return RepairableDamage(lost_checkpoint=lost, unwritten=tuple(unwritten))
    table = LogTable.open_if_exists(location, sink_id)
    if table is None:
        emptied = corruption.empty(location, sink_id)
        if emptied is not None:
            raise emptied
        raise ConfigurationError(f"Commit log {location.uri} does not exist.", sink_id=sink_id)
    read_history(table)
    return RepairableDamage(doubled=table.doubled)
