"""Which sinks have a log below a root."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from eos.commit_log._table import LogTable
from eos.commit_log.corruption import is_remains
from eos.commit_log.location import LOG_FOLDER, Location
from eos.errors import CommitLogUnreadable, ConfigurationError
from eos.ids import check_sink_id


def sinks(root: str | Path, *, storage_options: Mapping[str, str] | None = None) -> list[str]:
    """Ids of the sinks that have a log below ``root``, or what is left of one, sorted; [] when
    there is no ``root``. A folder that can't be looked into counts.

    Raises:
        ConfigurationError: a URL with credentials in it.
        CommitLogError: ``root`` can't be listed.
    """
    return _folders(Location(root, storage_options=storage_options), _is_log)


def emptied(root: str | Path, *, storage_options: Mapping[str, str] | None = None) -> list[str]:
    """Names of folders with nothing in them below ``root``: logs that somebody has emptied, or that
    were never finished. Raises as ``sinks``."""
    return _folders(Location(root, storage_options=storage_options), _is_empty)


def _folders(root: Location, is_wanted: Callable[[Location, str], bool]) -> list[str]:
    try:
        return [name for name in root.names() if _is_sink_id(name) and is_wanted(root, name)]
    except OSError as error:
        raise CommitLogUnreadable(
            f"commit logs below {root.uri} can't be listed: {root.clean(error)}.",
            hint=(isinstance(error, PermissionError) and root.whose()) or None,
        ) from None


def _is_log(root: Location, name: str) -> bool:
    try:
        return bool(root.names(f"{name}/{LOG_FOLDER}")) or is_remains(root.names(name))
    except PermissionError:
        return True


def _is_empty(root: Location, name: str) -> bool:
    if root.folder is None or not (root.folder / name).is_dir() or _is_log(root, name):
        return False
    return set(root.names(name)) <= {LOG_FOLDER}


def has_log(
    root: str | Path, sink_id: str, *, storage_options: Mapping[str, str] | None = None
) -> bool:
    """Whether a sink has a log below ``root``.

    Raises:
        ConfigurationError: a bad sink id or URL.
        CommitLogError: there is one, and it is broken; names the file.
    """
    return LogTable.maybe_open(Location(root, sink_id, storage_options), sink_id) is not None


def _is_sink_id(name: str) -> bool:
    try:
        check_sink_id(name)
    except ConfigurationError:
        return False
    return True
