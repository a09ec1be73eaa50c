"""Lists the sinks with a log below a root."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from eos.commit_log._log_table import LogTable
from eos.commit_log.corruption import includes_table_files
from eos.commit_log.location import LOG_FOLDER, Location
from eos.errors import CommitLogUnreadable, ConfigurationError
from eos.ids import check_sink_id


def list_sinks(root: str | Path, *, storage_options: Mapping[str, str] | None = None) -> list[str]:
    """List the ids of the sinks with a log, or parts of one, below ``root``, sorted; [] if ``root``
    does not exist. A folder that can't be listed counts.

    Raises:
        ConfigurationError: a URL with credentials in it.
        CommitLogError: ``root`` can't be listed.
    """
    return _folders(Location(root, storage_options=storage_options), _is_log)


def list_emptied(
    root: str | Path, *, storage_options: Mapping[str, str] | None = None
) -> list[str]:
    """List the empty folders below ``root``: logs that were emptied, or never completed. Raises as
    ``list_sinks``."""
    return _folders(Location(root, storage_options=storage_options), _is_empty)


def _folders(root: Location, is_wanted: Callable[[Location, str], bool]) -> list[str]:
    try:
        return [name for name in root.names() if _is_sink_id(name) and is_wanted(root, name)]
    except OSError as error:
        raise CommitLogUnreadable(
            f"Commit logs below {root.uri} can't be listed: {root.clean(error)}.",
            hint=(isinstance(error, PermissionError) and root.describe_owner()) or None,
        ) from None


def _is_log(root: Location, name: str) -> bool:
    try:
        return bool(root.names(f"{name}/{LOG_FOLDER}")) or includes_table_files(root.names(name))
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
        CommitLogError: it exists, and is broken; names the file.
    """
    return LogTable.open_if_exists(Location(root, sink_id, storage_options), sink_id) is not None


def _is_sink_id(name: str) -> bool:
    try:
        check_sink_id(name)
    except ConfigurationError:
        return False
    return True
